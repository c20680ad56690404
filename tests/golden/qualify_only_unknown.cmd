$CULPRIT qualify --engine ref --only seventh
