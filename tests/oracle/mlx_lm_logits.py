#!/usr/bin/env python3
"""Decodes with mlx_lm on the CPU and writes the logits: mlx_lm_logits.py FOLDER OUT CHUNKS TOKENS

FOLDER holds config.json and model.safetensors; CHUNKS "6,1,1" says how the TOKENS "5,6,.." are fed. OUT gets the f32 logits of all tokens,
one after the other. mlx_lm's models are imported without the rest of it, which needs tokenizers.
"""
import importlib
import json
import pathlib
import sys
import sysconfig
import types

package = types.ModuleType("mlx_lm")
package.__path__ = [str(pathlib.Path(sysconfig.get_paths()["purelib"]) / "mlx_lm")]
sys.modules["mlx_lm"] = package
import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402

MODULES = {"mistral": "llama"}  # as mlx_lm.utils maps them


def load(folder):
    """The model that mlx_lm makes of the folder, and its config."""
    mx.set_default_device(mx.cpu)
    config = json.loads((folder / "config.json").read_text())
    module = importlib.import_module("mlx_lm.models." + MODULES.get(config["model_type"], config["model_type"]))
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = mx.load(str(folder / "model.safetensors"))
    if "quantization" in config:
        quantization = config["quantization"]
        nn.quantize(model, quantization["group_size"], quantization["bits"],
                    class_predicate=lambda path, module: hasattr(module, "to_quantized") and f"{path}.scales" in weights)
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()))  # strict: each weight has its place
    return model, config


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    chunks, tokens = ([int(part) for part in text.split(",")] for text in sys.argv[3:5])
    model, _ = load(folder)
    cache = importlib.import_module("mlx_lm.models.cache").make_prompt_cache(model)
    with open(out, "wb") as file:
        begin = 0
        for chunk in chunks:
            logits = model(mx.array([tokens[begin:begin + chunk]]), cache=cache)
            assert logits.dtype == mx.float32, logits.dtype
            mx.eval(logits)
            file.write(bytes(memoryview(logits)))
            begin += chunk


if __name__ == "__main__":
    main()
