$TINY_MODEL in
$CULPRIT find in --engine ref --prompt 1,2,97,4
