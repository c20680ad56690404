$CULPRIT engine add mlx@latest..
