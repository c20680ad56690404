$CULPRIT find smollm2 --engine ref --seed -3
