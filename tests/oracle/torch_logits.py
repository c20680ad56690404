#!/usr/bin/env python3
"""Decodes with transformers on the CPU and writes the logits: torch_logits.py FOLDER OUT CHUNKS TOKENS

As mlx_lm_logits.py. Run by a Python that has torch; transformers is imported without the rest of it, which needs tokenizers and a newer
hub client.
"""
import json
import pathlib
import sys

import torch


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    chunks, tokens = ([int(part) for part in text.split(",")] for text in sys.argv[3:5])
    import transformers
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, torch_dtype=torch.float32)
    model.eval()
    cache = transformers.DynamicCache()
    begin = 0
    with open(out, "wb") as file, torch.no_grad():
        for chunk in chunks:
            logits = model(torch.tensor([tokens[begin:begin + chunk]]), past_key_values=cache, use_cache=True).logits
            assert logits.dtype == torch.float32, logits.dtype
            file.write(logits.contiguous().numpy().tobytes())
            begin += chunk


main()
