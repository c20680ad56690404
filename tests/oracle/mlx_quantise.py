#!/usr/bin/env python3
"""Writes a model's weights in MLX's affine quantisation, as mlx_lm's convert does: mlx_quantise.py FOLDER OUT BITS GROUP

FOLDER and OUT hold config.json and model.safetensors. Every linear, embedding and expert weight is quantised, whose width allows it."""
import json
import pathlib
import sys

from mlx_lm_logits import load  # first: it makes mlx_lm's models importable without the rest of it
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    bits, group = map(int, sys.argv[3:5])
    model, config = load(folder)

    def quantisable(_, module):
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0

    nn.quantize(model, group, bits, class_predicate=quantisable)
    mx.eval(model.parameters())
    out.mkdir(parents=True, exist_ok=True)
    config["quantization"] = {"group_size": group, "bits": bits, "mode": "affine"}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    mx.save_safetensors(str(out / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})


main()
