$CULPRIT explain F24
$CULPRIT explain 'mlx 3494'
