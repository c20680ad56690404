$TINY_MODEL in
$CULPRIT find in --engine ref --quiet --json >clean.json; echo "clean: $?"
$CULPRIT find in --engine ref --quiet --json --fault F05 --keep kept >planted.json; echo "planted: $?"
python3 - <<'PYTHON'
import json
for name in ("clean", "planted"):
    verdict = json.load(open(name + ".json"))
    print(name, verdict["schema"], verdict["verdict"], verdict["exit_code"], [d["op"] for d in verdict["defects"]])
PYTHON
ls kept | grep -c run-001
