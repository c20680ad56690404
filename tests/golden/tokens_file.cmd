mkdir in; printf '1 2\n3 4x\n' >in/ids
$CULPRIT find smollm2 --engine ref --prompt in/ids
