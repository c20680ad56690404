# One run a token a step and one all at once: recorded, audited, and equal in logical coordinates.
$TINY_MODEL in
$CULPRIT run in --engine ref --dtype bf16 --base 257 --prompt 5,6,7,8 --out steps --quiet >run.txt; echo "run: $?"
$CULPRIT run in --engine ref --dtype bf16 --base 257 --prompt 5,6,7,8 --chunks prefill --out whole --quiet >run.txt; echo "run: $?"
$CULPRIT audit steps whole --quiet >audit.txt; echo "audit: $?"
awk '/^rope/ {print $1, $4, "outputs", $6, "outside"}' audit.txt
$CULPRIT compare steps whole; echo "compare: $?"
$CULPRIT run in --engine ref --dtype bf16 --base 257 --prompt 5,6,7,8 --fault F05 --out broken --quiet >run.txt; echo "run: $?"
$CULPRIT audit broken --quiet >audit.txt; echo "audit: $?"
awk '/^outside/ {print $1, $2}' audit.txt
$CULPRIT compare steps broken >compare.txt; echo "compare: $?"
awk '/layers.0.q_rope|layers.0.k_rope/ {print $1, $2}' compare.txt
