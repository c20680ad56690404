$CULPRIT model get smolm2
