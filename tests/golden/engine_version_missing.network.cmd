# The package index has no such release; what it has changes, so only the form of the message is looked at.
$CULPRIT engine add mlx@0.1.99 --quiet 2>err; echo "exit: $?"
wc -l <err | tr -d ' '
grep -o '^culprit: error\[[a-z-]*\]' err
find home -name '*0.1.99*' -o -name '.tmp*'
