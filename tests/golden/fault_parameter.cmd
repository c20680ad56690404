$CULPRIT find smollm2 --engine ref --fault F01:content=full
