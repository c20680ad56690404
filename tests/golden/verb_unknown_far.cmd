$CULPRIT frobnicate
