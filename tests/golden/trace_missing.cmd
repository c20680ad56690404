$CULPRIT audit nowhere
