$TINY_MODEL in
$CULPRIT run in --engine ref --prompt 1,2,3 --intervene exactly:logits --out trace
