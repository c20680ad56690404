$TINY_MODEL in
$CULPRIT find in --engine ref --suspect cach
