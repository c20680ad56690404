$CULPRIT find smollm2 --engin ref
