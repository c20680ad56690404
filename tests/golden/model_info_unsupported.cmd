# A GGUF file of an architecture without a graph: why it cannot be decoded, and what is in it. Its texts are no commands to a terminal.
mkdir in; python3 - <<'END'
import struct
text = lambda s: struct.pack("<Q", len(s)) + s
entries = {b"general.architecture": (8, text(b"abacus")), b"general.name": (8, text(b"one\x1b[2Jtwo\xff")), b"abacus.block_count": (4, struct.pack("<I", 3)),
           b"abacus.epsilon": (6, struct.pack("<f", float("nan"))), b"abacus.beads": (9, struct.pack("<IQ", 0, 2) + b"ab"), b"tokenizer.ggml.model": (8, text(b"gpt2"))}
tensors = {b"token_embd.weight": ((256, 2), 12, 2 * 144), b"output_norm.weight": ((256,), 0, 1024)}
head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)), b""
head += b"".join(text(key) + struct.pack("<I", kind) + value for key, (kind, value) in entries.items())
for name, (shape, kind, size) in tensors.items():
    head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
    data += bytes(size)
open("in/a.gguf", "wb").write(head + bytes(-len(head) % 32) + data)
END
$CULPRIT model info in/a.gguf --tensors; echo "info: $?"
$CULPRIT model info in/a.gguf --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cannot_decode"])'
$CULPRIT run in/a.gguf --engine ref --prompt 1 --out trace --quiet; echo "run: $?"
