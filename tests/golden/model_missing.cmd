$CULPRIT find smolm2 --engine ref
