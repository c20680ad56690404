$CULPRIT find smollm2 --engine ref --prompt 1,-2
