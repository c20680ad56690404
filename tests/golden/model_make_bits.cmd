# Rows of 256 channels are whole groups, those of 688 are not. A tiny model has none that are.
$CULPRIT model make llama --size small --bits 4 --out packed
$CULPRIT model info packed --tensors | awk '/layers\.1\./ {print}'
$CULPRIT model make llama --bits 4 --out tiny; echo "exit code $?"
$CULPRIT model make llama --size small --bits 3 --out odd; echo "exit code $?"
