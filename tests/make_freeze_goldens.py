#!/usr/bin/env python3
"""Writes tests/data/freeze.json: what PyTorch says of golden models of which some weights are frozen.

    pip install torch transformers safetensors
    python tests/make_freeze_goldens.py

Frozen weights have requires_grad=False and are not given to the optimizer. Losses and gradient norms of all steps of the
model's golden.json, in fp32 on the CPU.
"""
import fnmatch
import json
import pathlib
import struct

import torch
import transformers

DATA = pathlib.Path(__file__).parent / "data"
# A model and its patterns: whole blocks from below; a tied table; parts of fused projections, with and without biases.
CASES = [("golden/llama-tiny", ["model.embed_tokens.*", "model.layers.0.*"]),
         ("golden/gpt2-tiny", ["transformer.wte.weight", "*.attn.c_attn.*"]),
         ("golden/qwen2-tiny", ["*.q_proj.*", "*.up_proj.weight"]),
         ("golden/qwen3-tiny", ["*norm*", "*.[kv]_proj.weight"]),
         ("golden-extra/llama-mlp-bias", ["*.gate_proj.bias", "lm_head.*", "model.norm.weight"])]


def train(directory, golden, patterns):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32,
                                                              attn_implementation="eager").train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rule = golden["optimizer"]
    optimizer = torch.optim.AdamW(trained, lr=rule["lr"], betas=tuple(rule["betas"]), eps=rule["eps"],
                                  weight_decay=rule["weight_decay"])
    raw = (directory / "tokens.bin").read_bytes()
    tokens = struct.unpack(f"<{len(raw) // 2}H", raw)
    length, count = golden["seq"], (len(tokens) - 1) // golden["seq"]
    losses, norms = [], []
    for step in range(golden["steps"]):
        samples = [(step * golden["batch"] + b) % count * length for b in range(golden["batch"])]
        rows = torch.tensor([tokens[first:first + length + 1] for first in samples])
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, golden["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "grad_norms": norms, "trained": sum(parameter.numel() for parameter in trained)}


def main():
    torch.set_num_threads(1)
    runs = []
    for name, patterns in CASES:
        golden = json.loads((DATA / name / "golden.json").read_text())
        runs.append({"model": name, "freeze": patterns, **train(DATA / name, golden, patterns)})
        print(name, patterns, runs[-1]["losses"][0], runs[-1]["losses"][-1])
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}"
    (DATA / "freeze.json").write_text(json.dumps({"made_with": made_with, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
