#!/usr/bin/env python3
"""Writes tests/data/golden-extra: tiny models with what PyTorch says they must do, for cases that tests/data/golden lacks.

    pip install torch transformers safetensors
    python tests/make_goldens.py [--output DIR] [NAME ...]

Each directory is a Hugging Face model as transformers saves it, with tokens.bin (uint16), golden.json (losses and gradient
norms of 12 AdamW steps, a prompt and its greedy continuation) and golden.safetensors (the logits of the first sample).
Everything is computed in fp32 on the CPU, from the weights as they are stored.
"""
import argparse
import json
import pathlib
import random
import struct

import torch
import transformers
from safetensors.torch import save_file

SEQ, BATCH, STEPS, CLIP, VOCAB = 48, 4, 12, 1.0, 256
OPTIMIZER = {"lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-06, "weight_decay": 0.1}
PROMPT = [3, 10, 17, 24, 31, 38, 8]
GREEDY_TOKENS = 24

COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.12, rms_norm_eps=1e-6,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_head=4, n_layer=2, n_positions=128, attn_pdrop=0.0, embd_pdrop=0.0,
            resid_pdrop=0.0, initializer_range=0.12, bos_token_id=None, eos_token_id=None)


def llama(**changes):
    return transformers.LlamaConfig(**{**COMMON, **changes})


# Name: configuration, the dtype its weights are stored in, keys that older files do not have.
CASES = {
    "llama3-rope": (lambda: llama(tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}), torch.float32, []),
    "llama-linear-rope": (lambda: llama(tie_word_embeddings=True, rope_parameters={
        "rope_type": "linear", "rope_theta": 20000.0, "factor": 4.0}), torch.float32, []),
    "llama-mlp-bias": (lambda: llama(mlp_bias=True, head_dim=12, num_key_value_heads=1), torch.float32, []),
    "mistral-window": (lambda: transformers.MistralConfig(**COMMON, sliding_window=8, head_dim=8), torch.float32, []),
    "qwen2-window": (lambda: transformers.Qwen2Config(
        **COMMON, use_sliding_window=True, sliding_window=8, max_window_layers=1), torch.float32, ["layer_types"]),
    "qwen3-layer-types": (lambda: transformers.Qwen3Config(
        **COMMON, head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=6, max_window_layers=0,
        layer_types=["sliding_attention", "full_attention"]), torch.float32, []),
    "gpt2-options": (lambda: transformers.GPT2Config(
        **GPT2, activation_function="gelu", n_inner=48, scale_attn_by_inverse_layer_idx=True,
        tie_word_embeddings=False), torch.float32, []),
    "llama-bf16": (lambda: llama(), torch.bfloat16, []),
    "gpt2-fp16": (lambda: transformers.GPT2Config(**GPT2), torch.float16, []),
}


def make_tokens(count, seed):
    """A noisy walk: each token mostly follows from the one before, so that there is something to learn."""
    rng = random.Random(seed)
    tokens = [rng.randrange(VOCAB)]
    while len(tokens) < count:
        tokens.append((tokens[-1] * 5 + 17) % VOCAB if rng.random() < 0.7 else rng.randrange(VOCAB))
    return tokens


def perturb(model, seed):
    """Biases and norm weights that differ from zero and one, so that a test notices when they are not used."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def batch(tokens, step):
    rows = []
    count = (len(tokens) - 1) // SEQ
    for b in range(BATCH):
        k = (step * BATCH + b) % count
        rows.append(tokens[k * SEQ:k * SEQ + SEQ + 1])
    rows = torch.tensor(rows)
    return rows[:, :-1], rows[:, 1:]


def train(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), **{**OPTIMIZER, "betas": tuple(OPTIMIZER["betas"])})
    losses, norms = [], []
    model.train()
    for step in range(STEPS):
        ids, targets = batch(tokens, step)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


@torch.no_grad()
def greedy(model):
    """The whole prefix each time: no cache that could hide a mistake."""
    ids, margin = list(PROMPT), float("inf")
    for _ in range(GREEDY_TOKENS):
        top = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        ids.append(top.indices[0].item())
    return ids[len(PROMPT):], margin


def make(name, output):
    config, dtype, dropped = CASES[name]
    seed = sum(name.encode())
    torch.manual_seed(seed)
    directory = output / name
    model = transformers.AutoModelForCausalLM.from_config(config())
    perturb(model, seed)
    model.to(dtype).save_pretrained(directory)
    if dropped:
        path = directory / "config.json"
        saved = json.loads(path.read_text())
        for key in dropped:
            saved.pop(key, None)
        path.write_text(json.dumps(saved, indent=2) + "\n")

    def fresh():
        return transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager")

    tokens = make_tokens(BATCH * STEPS * SEQ + 1, seed)
    (directory / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    model = fresh().eval()
    continuation, margin = greedy(model)
    ids, targets = batch(tokens, 0)
    with torch.no_grad():
        logits = model(input_ids=ids[:1], use_cache=False).logits
    save_file({"input_ids": ids[:1].int().contiguous(), "targets": targets[:1].int().contiguous(),
               "logits": logits.contiguous()}, directory / "golden.safetensors")
    losses, norms = train(fresh(), tokens)
    golden = {
        "made_with": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "seq": SEQ, "batch": BATCH, "steps": STEPS, "clip": CLIP,
        "optimizer": {**OPTIMIZER, "type": "AdamW", "lr_schedule": "constant"},
        "losses": losses, "grad_norms": norms, "prompt": PROMPT, "greedy": continuation, "greedy_margin": margin,
        "params": sum(p.numel() for p in model.parameters()),
    }
    (directory / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, greedy margin {margin:.4f}, {size / 1024:.0f} KiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "data" / "golden-extra")
    parser.add_argument("names", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names:
        make(name, arguments.output)


if __name__ == "__main__":
    main()
