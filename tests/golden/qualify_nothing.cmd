$CULPRIT qualify --engine ref --count 0 --out left
