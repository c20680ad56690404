# The driver says so; its exit code is that of an engine.
$TINY_MODEL in
$CULPRIT run in --engine ref --prompt 1,2,3 --variant rope=spiral --out trace --quiet
