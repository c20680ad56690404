$CULPRIT find smollm2 --engine ref --dtype fp8
