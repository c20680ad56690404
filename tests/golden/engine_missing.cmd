$CULPRIT find smollm2 --engine mlx@0.32.4
