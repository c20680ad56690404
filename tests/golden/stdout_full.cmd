$CULPRIT help >/dev/full
