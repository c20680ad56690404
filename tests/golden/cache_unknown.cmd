$CULPRIT find smollm2 --engine ref --cache paded
