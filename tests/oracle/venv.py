#!/usr/bin/env python3
"""Makes a venv with the given requirements, once: venv.py FOLDER REQUIREMENTS.txt [OPTION OF venv..]

Does nothing when FOLDER was made from the same requirements by the same Python; else makes it anew. Its Python is FOLDER/bin/python."""
import fcntl
import pathlib
import shutil
import subprocess
import sys


def main():
    folder, requirements = map(pathlib.Path, sys.argv[1:3])
    options = sys.argv[3:]
    stamp = folder / "made-from.txt"
    expected = f"{sys.version}\n{options}\n{requirements.read_text()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == expected:
            return
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", *options, folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--no-deps",
                        "-r", requirements], check=True)
        stamp.write_text(expected)


if __name__ == "__main__":
    main()
