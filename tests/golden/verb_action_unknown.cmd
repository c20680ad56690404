$CULPRIT engine ad mlx@0.32.4
