$TINY_MODEL in
$CULPRIT run in --engine ref --prompt 1,2,3 --chunks 1,1 --out trace
