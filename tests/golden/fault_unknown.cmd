$CULPRIT find smollm2 --engine ref --fault F0
