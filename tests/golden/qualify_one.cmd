# One case by its name: what was planted, the same find, the verdict, and how it was scored. The model is kept, so the find can be made.
# Which case it is changes with the catalogue.
$CULPRIT qualify --engine ref --seed 1 --only 5 --out kept --quiet --json >case.json; echo "qualify: $?"
python3 - <<'PYTHON'
import json, os, shlex, subprocess
case = json.load(open("case.json"))
print(case["case"], case["outcome"] in ("localised", "inconclusive"), sorted(case["changed_ops"]) == sorted(case["named_ops"]), case["verdict"]["schema"])
words = shlex.split(case["find"])
again = subprocess.run([os.environ["CULPRIT"], *words[1:], "--quiet", "--json"], capture_output=True, text=True)
verdict = json.loads(again.stdout)
print("find:", again.returncode == case["verdict"]["exit_code"], [d["op"] for d in verdict["defects"]] == case["named_ops"])
PYTHON
