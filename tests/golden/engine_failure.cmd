# An engine that fails in step 2 of the arm "batch": exit code 4, the verdict names it, and what it recorded before can be audited and compared.
$TINY_MODEL in/model
mkdir in/bin
ln $CULPRIT in/bin/culprit 2>/dev/null || cp $CULPRIT in/bin/culprit  # the program looks for its built-in engine beside itself
for how in crash exit hang garbage truncated-values file-size-limit; do
  printf '#!/bin/sh\nexec "%s" %s batch 2\n' "$FAILING_ENGINE" $how >in/bin/culprit-ref
  chmod +x in/bin/culprit-ref
  limit=60
  [ $how = hang ] && limit=2
  in/bin/culprit find in/model --engine ref --timeout $limit --keep $how --quiet --json >$how.json; echo "$how: $?"
  python3 - $how <<'PYTHON'
import json, re, sys
verdict = json.load(open(sys.argv[1] + ".json"))
print(" ", verdict["verdict"], re.sub(r"\d+ bytes", "N bytes", verdict["reason"].split(": taps.jsonl")[0]))
print(" ", verdict["failure"]["error"], verdict["failure"]["run"]["last_step"], len(verdict["audited"]), "ops audited")
print(verdict["failure"]["run"]["trace"], file=open("trace", "w"))
PYTHON
  $CULPRIT audit $how/$(cat trace) --quiet >audit.txt; echo "  audit: $?, $(awk '/^linear/ {print $4, "outputs", $6, "outside"}' audit.txt)"
  $CULPRIT compare crash/$(cat trace) $how/$(cat trace) --quiet >compare.txt; echo "  compare: $?, $(head -1 compare.txt)"
done
printf '#!/bin/sh\nexec "%s" crash batch 2\n' "$FAILING_ENGINE" >in/bin/culprit-ref
in/bin/culprit find in/model --engine ref --quiet >text; echo "text: $?"
sed -n 's/ref@[0-9.]*/ref/; s/run-[0-9]*/run-N/; 1p; /everything after/,$p' text
