# A campaign is interrupted: exit code 130, nobody is left running, and what was done stands in whole lines.
python3 - <<'PYTHON'
import json, os, signal, subprocess, time
campaign = [os.environ["CULPRIT"], "qualify", "--engine", "ref", "--count", "500", "--jobs", "2", "--quiet", "--out", "out"]
culprit = subprocess.Popen(campaign, stdout=subprocess.DEVNULL)
deadline = time.monotonic() + 120
lines = []
while len(lines) < 2 and time.monotonic() < deadline:
    time.sleep(0.2)
    lines = open("out/cases.jsonl").read().split("\n")[:-1] if os.path.exists("out/cases.jsonl") else []
culprit.send_signal(signal.SIGINT)
print("exit code", culprit.wait(60))
text = open("out/cases.jsonl").read()
print("whole lines:", text.endswith("\n"), json.loads(text.split("\n")[0])["schema"])
print("cases:", all(json.loads(line)["outcome"] != "failed" for line in text.split("\n")[1:-1]))
PYTHON
