# Cases of another seed, and another count, are not mixed with those that are there. The folder that was there stays as it was.
mkdir in
$CULPRIT qualify --engine ref --count 0 --nulls 1 --seed 1 --jobs 1 --quiet --out in >/dev/null || exit 99
$CULPRIT qualify --engine ref --count 0 --nulls 1 --seed 2 --jobs 1 --quiet --out in
