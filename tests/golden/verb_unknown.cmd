$CULPRIT fnd smollm2
