# A folder that culprit decodes.
$TINY_MODEL in
$CULPRIT model info in | head -n 8
$CULPRIT model info in --tensors | sed -n '/^tensor_list/,$p' | head -n 5
$CULPRIT model info in --tensors --json | python3 -c 'import json, sys; all = json.load(sys.stdin); print(all["tensors"], len(all["tensor_list"]), all["tensor_list"][0])'
