# A run of thousands of steps is interrupted: exit code 130, nobody is left running.
$TINY_MODEL in
python3 -c 'print(*([1, 2, 3, 4] * 2000))' >in/ids
python3 - <<'PYTHON'
import os, signal, subprocess, time
for name in ("SIGINT", "SIGTERM"):
    culprit = subprocess.Popen([os.environ["CULPRIT"], "run", "in", "--engine", "ref", "--prompt", "in/ids", "--hash-only", "--quiet"])
    children = f"/proc/{culprit.pid}/task/{culprit.pid}/children"
    driver = ""
    deadline = time.monotonic() + 60
    while os.path.exists(children) and not driver and time.monotonic() < deadline:
        time.sleep(0.05)
        driver = open(children).read().strip()
    time.sleep(0.5)
    culprit.send_signal(getattr(signal, name))
    print(name, "exit code", culprit.wait(60))
    if driver and os.path.exists(f"/proc/{driver}"):
        print("the driver is left")
PYTHON
