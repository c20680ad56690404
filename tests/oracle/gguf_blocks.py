#!/usr/bin/env python3
"""Compares culprit's reading of every GGUF block type with the dequantisation of the `gguf` package, bit for bit: gguf_blocks.py PROGRAM

PROGRAM FILE OUT prints a line "NAME TYPE SHAPE" for each tensor of FILE and writes all their values to OUT as f32. The files are written by
the package too. What may differ: the bits of a NaN; and for Q4_0 and Q8_0, which culprit keeps packed as scale * q + bias, the sign of a
zero, and a block whose scale is not finite, which must be NaN throughout."""
import importlib.metadata
import subprocess
import sys
import tempfile

import gguf
import numpy as np

TYPES = {
    # type: (byte offsets of the f16 numbers of a block)
    "F32": (), "F16": (0,), "BF16": (),
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}
PACKED = ("Q4_0", "Q8_0")
# zeros, subnormals, the smallest normal, ones, the largest, infinities, NaNs
HALVES = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFD01], np.uint16)
FILLS = (0x00, 0xFF, 0x80, 0x7F, 0x55, 0xAA, 0x0F, 0xF0, 0x3F, 0xC0)


def put_half(blocks, offset, bits):
    blocks[:, offset:offset + 2] = np.broadcast_to(bits, len(blocks)).astype("<u2").reshape(-1, 1).view(np.uint8)


def tame_blocks(offsets, block_bytes, count, generator):
    """Random quants; numbers whose multiples stay in f16, so that packed types keep f16 scales."""
    blocks = generator.integers(0, 256, (count, block_bytes), np.uint8)
    for offset in offsets:
        put_half(blocks, offset, (generator.normal(size=count) / 8).astype(np.float16).view(np.uint16))
    return blocks


def extreme_blocks(offsets, block_bytes, generator):
    """Every pair of special numbers with every fill of the other bytes, and with random ones."""
    parts = []
    for fill in (*FILLS, None):
        for first in HALVES:
            blocks = np.full((len(HALVES), block_bytes), fill or 0, np.uint8)
            if fill is None:
                blocks = generator.integers(0, 256, blocks.shape, np.uint8)
            for offset, bits in zip(offsets, (first, HALVES)):
                put_half(blocks, offset, bits)
            parts.append(blocks)
    return np.concatenate(parts)


def cases(generator):
    """Yields name, type, bytes [rows, bytes of a row]."""
    for name, offsets in TYPES.items():
        qtype = gguf.GGMLQuantizationType[name]
        elements, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
        count = 3 * 37 * max(1, 256 // elements) * 32  # rows of 3 or more blocks
        sets = {"tame": tame_blocks(offsets, block_bytes, count, generator), "extreme": extreme_blocks(offsets, block_bytes, generator),
                "random": generator.integers(0, 256, (count, block_bytes), np.uint8)}
        if elements == 32:  # those that the package can make from numbers
            sets["quantised"] = gguf.quants.quantize(generator.normal(size=(count, 32)).astype(np.float32), qtype)
        for kind, blocks in sets.items():
            rows = 37 if kind != "extreme" else 1
            yield f"{name}.{kind}", name, blocks.reshape(rows, -1)


def expected_values(name, rows):
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name]).astype(np.float32)


def difference(name, rows, expected, actual):
    """How many values differ, by the rule above."""
    both_nan = np.isnan(expected) & np.isnan(actual)
    same = (expected.view(np.uint32) == actual.view(np.uint32)) | both_nan
    if name in PACKED:
        same |= (expected == 0) & (actual == 0)
        block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
        scales = np.ascontiguousarray(rows.reshape(-1, block_bytes)[:, :2]).view("<f2").ravel()
        broken = np.repeat(~np.isfinite(scales), 32).reshape(same.shape)
        same = np.where(broken, np.isnan(actual), same)
    return int(np.count_nonzero(~same))


def main():
    program = sys.argv[1]
    seed = 20
    print(f"seed {seed}, gguf {importlib.metadata.version('gguf')}, numpy {np.__version__}")
    tensors = list(cases(np.random.default_rng(seed)))
    with tempfile.TemporaryDirectory() as folder:
        file, out = f"{folder}/a.gguf", f"{folder}/values"
        writer = gguf.GGUFWriter(file, "llama")
        for tensor, name, rows in tensors:
            writer.add_tensor(tensor, rows, raw_dtype=gguf.GGMLQuantizationType[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        lines = subprocess.run([program, file, out], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        values = np.fromfile(out, np.float32)
    failed = len(lines) != len(tensors)
    at = 0
    for line, (tensor, name, rows) in zip(lines, tensors):
        expected = expected_values(name, rows)
        actual = values[at:at + expected.size].reshape(expected.shape)
        at += expected.size
        shape = "x".join(map(str, expected.shape))
        wrong = difference(name, rows, expected, actual)
        print(f"{tensor:16} {expected.size:8} values, {wrong} differ")
        if line != f"{tensor} {name} {shape}":
            print(f"expected '{tensor} {name} {shape}', got '{line}'")
            failed = True
        failed = failed or wrong > 0
    sys.exit(1 if failed or at != values.size else 0)


if __name__ == "__main__":
    main()
