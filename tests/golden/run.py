#!/usr/bin/env python3
"""Runs one golden case of the command line, or rewrites what it expects.

  run.py CASE.cmd --culprit PROGRAM --tiny-model PROGRAM --failing-engine PROGRAM [--update]

CASE.cmd is bash, run in an empty folder with a home of its own in ./home. CASE.out, CASE.err and CASE.code hold what it is expected to
print and return; a missing one means nothing, and 0. A case that ends with exit code 2 was refused: it must have printed nothing on
stdout, one line on stderr, and left nothing behind but ./in, which is where cases put what they make for themselves.
"""
import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

REFUSED = 2
TIME_LIMIT_S = 240


def run(case, programs):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        work, temporary = folder / "work", folder / "tmp"
        work.mkdir()
        temporary.mkdir()
        kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.upper().endswith("_PROXY") or name.startswith(("PIP_", "SSL_", "ASAN_", "UBSAN_"))}
        environment = {**kept, "LANG": "C.UTF-8", "HOME": str(folder), "CULPRIT_HOME": str(work / "home"), "TMPDIR": str(temporary),
                       **programs}
        done = subprocess.run(["bash", str(case)], cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_LIMIT_S)
        left = sorted(p.name for p in work.iterdir()) + [f"TMPDIR/{p.name}" for p in temporary.iterdir()]
        # macOS spells temporary folders in two ways
        clean = lambda text: re.sub("|".join(re.escape(str(p)) for p in {work.resolve(), work}), "DIR", text)
        return clean(done.stdout), clean(done.stderr), done.returncode, left


def read(path, otherwise):
    return path.read_text() if path.exists() else otherwise


def write(path, text, otherwise):
    if text == otherwise:
        path.unlink(missing_ok=True)
    else:
        path.write_text(text)


def refusal_failures(out, err, left):
    if out:
        yield f"refused, but stdout is not empty: {out!r}"
    if err.count("\n") != 1 or not re.match(r"culprit: error\[[a-z-]+\]: ", err):
        yield f"refused, but stderr is not one line with an error id: {err!r}"
    for name in left:
        if name != "in":
            yield f"refused, but left behind: {name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("--culprit", required=True)
    parser.add_argument("--tiny-model", required=True)
    parser.add_argument("--failing-engine", required=True)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()

    programs = {"CULPRIT": options.culprit, "TINY_MODEL": options.tiny_model, "FAILING_ENGINE": options.failing_engine}
    out, err, code, left = run(options.case.resolve(), programs)
    expectations = [(".out", out, ""), (".err", err, ""), (".code", f"{code}\n", "0\n")]
    failures = list(refusal_failures(out, err, left)) if code == REFUSED else []
    for suffix, actual, otherwise in expectations:
        path = options.case.with_suffix(suffix)
        if options.update:
            write(path, actual, otherwise)
        expected = read(path, otherwise)
        if actual != expected:
            failures.append("".join(difflib.unified_diff(expected.splitlines(True), actual.splitlines(True), path.name, "actual")))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
