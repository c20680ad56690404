$CULPRIT find smollm2
