$CULPRIT explain confounded
