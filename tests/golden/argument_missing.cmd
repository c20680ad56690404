$CULPRIT compare one
