#!/usr/bin/env python3
"""Holds culprit's graphs against mlx_lm, or transformers: graphs.py CASE --culprit PROGRAM --work FOLDER [--engine transformers]

A seeded random model is written by `culprit model make`, its config edited as CASE says, and decoded by both: six tokens at once, then eight
one by one, in float32, by the other engine, and by culprit's reference engine.

How far the logits may be apart. Take the reference engine in f64 as exact. Two runs in f32 measure the noise of arithmetic of that width on
this very model and these tokens: one rounds each op's float64 result once, the other also sums linear ops in f32 in reverse order. Their
distance from the exact logits, F, is the effect of at least one rounding for each element of each op. An f32 engine spends at most K of them
on an element, by the counts of src/audit/ops: the longest sum, n terms (the widest linear op, or the cached tokens), and 16 for the steps
around it (the 8 v of a norm, softmax, or gate, with their roundings to the dtype). To first order errors add, so its logits are within K F,
but where F is small by chance: it is the largest of thousands of logits. K F is about 1e-4 of the logits here. That it is sharp enough is part of the test: queries
rotated one position late (fault F05) must lie far outside.
"""
import argparse
import array
import fnmatch
import json
import pathlib
import shutil
import struct
import subprocess
import sys

TOKENS = [5, 41, 7, 96, 0, 13, 77, 8, 22, 64, 3, 90, 31, 58]
CHUNKS = [6] + [1] * 8
STEPS_AROUND_A_SUM = 16

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
DECODERS = {"mlx_lm": "mlx_lm_logits.py", "transformers": "torch_logits.py"}
# Architecture, what its config has instead, how many rows of which tensors stay, and the config around it.
CASES = {
    "llama": ("llama", {}),
    "llama_linear_rope": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama_llama3_rope": ("llama", {"rope_scaling": LLAMA3}),
    "mistral": ("mistral", {"sliding_window": None}),
    # mlx_lm's windows are those of layer_types, and it wants one layer without.
    "mistral_window": ("mistral", {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma3": ("gemma3", {}),
    "qwen3_moe": ("qwen3_moe", {}),
    "qwen3_5": ("qwen3_5", {}),
    "qwen3_5_moe": ("qwen3_5_moe", {}),
    "qwen3_5_wrapper": ("qwen3_5", {}, {}, {"model_type": "qwen3_5", "vocab_size": 97}),
    "gemma4": ("gemma4", {}),
    # As the 31B: full layers take their keys for values, of one kv head, and no layer has an input of its own.
    "gemma4_k_eq_v": ("gemma4", {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
                      {"*.2.self_attn.k_proj.weight": 12, "*.2.self_attn.v_proj.weight": 0, "*per_layer*": 0}),
    # As the text of a model of images and sound.
    "gemma4_wrapper": ("gemma4", {}, {}, {"model_type": "gemma4", "vocab_size": 97}),
}


# Of the size small, with every weight that is wide enough in MLX's affine quantisation: architecture, bits, group.
QUANTISED = {"llama_4bit": ("llama", 4, 64), "qwen3_moe_4bit": ("qwen3_moe", 4, 32), "qwen3_5_moe_8bit": ("qwen3_5_moe", 8, 32)}


def floats(data, dtype):
    values = array.array({"F32": "f", "F64": "d"}[dtype])
    values.frombytes(data)
    if sys.byteorder != "little":
        values.byteswap()
    return values


def read_tensors(file):
    """The header of a safetensors file, and its tensors' bytes one after the other."""
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def rewrite_tensors(file, rows, prefix):
    """Cuts tensors to their first rows, where those of which none are left go, and puts `prefix` in the place of "model."."""
    header, data = read_tensors(file)
    kept, parts, end = {"__metadata__": header.pop("__metadata__")}, [], 0
    for name, entry in header.items():
        begin, size = entry["data_offsets"][0], entry["data_offsets"][1] - entry["data_offsets"][0]
        left = next((n for pattern, n in rows.items() if fnmatch.fnmatch(name, pattern)), entry["shape"][0])
        size = size // entry["shape"][0] * left
        if left == 0:
            continue
        kept[name.replace("model.", prefix, 1)] = {"dtype": entry["dtype"], "shape": [left] + entry["shape"][1:], "data_offsets": [end, end + size]}
        parts.append(data[begin:begin + size])
        end += size
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def longest_sum(config):
    """Terms of the longest sum of the model: the widest linear op, or the cached tokens."""
    heads = config["num_attention_heads"] * max(config["head_dim"], config.get("global_head_dim", 0))
    mlp = config["intermediate_size"] * (2 if config.get("use_double_wide_mlp", False) else 1)
    delta = config.get("linear_num_value_heads", 0) * config.get("linear_value_head_dim", 0)
    return max(config["hidden_size"], mlp, heads, delta, config.get("num_experts", 0), len(TOKENS))


def recorded_logits(trace):
    values = []
    for step in range(len(CHUNKS)):
        header, data = read_tensors(trace / f"step-{step:06}.safetensors")
        begin, end = header["logits"]["data_offsets"]
        values += floats(data[begin:end], header["logits"]["dtype"])
    return values


def comma(numbers):
    return ",".join(map(str, numbers))


def reference(arguments, model, name, *options):
    trace = model.parent / name
    shutil.rmtree(trace, ignore_errors=True)
    subprocess.run([arguments.culprit, "run", model, "--engine", "ref", "--prompt", comma(TOKENS), "--chunks", comma(CHUNKS),
                    "--capture", "logits", "--out", trace, "--quiet", *options], check=True, stdout=subprocess.DEVNULL)
    return recorded_logits(trace)


def distance(expected, actual):
    assert len(expected) == len(actual), (len(expected), len(actual))
    errors = [abs(e - a) for e, a in zip(expected, actual)]
    assert all(error == error for error in errors), "NaN"
    return max(errors)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted({**CASES, **QUANTISED}))
    parser.add_argument("--culprit", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--engine", default="mlx_lm", choices=DECODERS)
    arguments = parser.parse_args()
    architecture, *quantisation = QUANTISED.get(arguments.case, (None,))
    if not quantisation:
        architecture, edits, rows, wrapper = (CASES[arguments.case] + ({}, {}))[:4]
    arguments.work.mkdir(parents=True, exist_ok=True)

    model = arguments.work / arguments.case / "model"
    subprocess.run([arguments.culprit, "model", "make", architecture, "--size", "small" if quantisation else "tiny", "--seed", "7", "--out", model,
                    "--quiet"], check=True, stdout=subprocess.DEVNULL)
    config = json.loads((model / "config.json").read_text())
    if quantisation:
        dense, model = model, arguments.work / arguments.case / "quantised"
        subprocess.run([sys.executable, pathlib.Path(__file__).parent / "mlx_quantise.py", dense, model, *map(str, quantisation)], check=True)
    else:
        config.update(edits)
        (model / "config.json").write_text(json.dumps({**wrapper, "text_config": config} if wrapper else config, indent=1))
        if rows or wrapper:
            rewrite_tensors(model / "model.safetensors", rows, "model.language_model." if wrapper else "model.")

    exact = reference(arguments, model, "exact", "--dtype", "f64")
    once = distance(exact, reference(arguments, model, "once", "--dtype", "f32"))
    reversed_sums = distance(exact, reference(arguments, model, "reversed", "--dtype", "f32", "--variant", "linear=reversed"))
    noise = max(once, reversed_sums)
    bound = (longest_sum(config) + STEPS_AROUND_A_SUM) * noise

    out = arguments.work / arguments.case / "logits.f32"
    subprocess.run([sys.executable, pathlib.Path(__file__).parent / DECODERS[arguments.engine], model, out, comma(CHUNKS), comma(TOKENS)], check=True)
    error = distance(exact, floats(out.read_bytes(), "F32"))
    broken = distance(exact, reference(arguments, model, "broken", "--dtype", "f32", "--fault", "F05"))
    print(f"{arguments.case}: {len(exact)} logits up to {max(map(abs, exact)):.3g}; noise of f32 {noise:.3g}; {arguments.engine} is {error:.3g} away, "
          f"{error / noise:.2g} times the noise; bound {bound:.3g}; F05 {broken:.3g}")
    if not error <= bound:
        sys.exit(f"{arguments.engine}'s logits are {error:.3g} away from culprit's, expected at most {bound:.3g}")
    if not broken > bound:
        sys.exit(f"the test could not have shown a fault: F05 moves the logits by {broken:.3g}, the bound is {bound:.3g}")


main()
