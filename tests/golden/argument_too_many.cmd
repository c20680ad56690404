$CULPRIT model info one two
