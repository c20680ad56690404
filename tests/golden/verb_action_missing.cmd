$CULPRIT engine
