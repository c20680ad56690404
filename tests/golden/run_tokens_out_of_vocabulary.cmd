$TINY_MODEL in
$CULPRIT run in --engine ref --prompt 1,2,97 --out trace
