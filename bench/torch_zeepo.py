"""A script of transformers' on a GPU, plain and with `import zeepo`: tokens a second, losses, memory.

usage: torch_zeepo.py [--steps N] [ROW...]
Rows: 3b (plain PyTorch), 3b-zeepo, 3b-host, 7b-host, 3b-autocast; all when none is named. Each is a process of its own.
Qwen2.5 shapes, random weights and tokens, bf16, each block compiled, AdamW, 32,768 tokens a step. Plain PyTorch keeps
bf16 weights and moments, which small steps leave as they are; zeepo keeps exact fp32 weights and moments, in host memory
where the row says so, as plain PyTorch does under autocast: those losses are to be compared. The median of the steps
after the third.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

SHAPES = {  # width, inner width, layers, heads, key heads, tied
    "0.5b": (896, 4864, 24, 14, 2, True),
    "3b": (2048, 11008, 36, 16, 2, True),
    "7b": (3584, 18944, 28, 28, 4, False),
}
ROWS = {  # shape, samples at once, how many times a step, options of zeepo.init(); none: plain
    "0.5b": ("0.5b", 4, 4, None),
    "0.5b-host": ("0.5b", 4, 4, dict(offload_optimizer="host")),
    "3b": ("3b", 4, 4, None),
    "3b-zeepo": ("3b", 4, 4, dict()),
    "3b-host": ("3b", 4, 4, dict(offload_optimizer="host")),
    "7b-host": ("7b", 2, 8, dict(offload_optimizer="host", memory={"device": "100GiB"})),
    "3b-autocast": ("3b", 4, 4, None),
}
USUAL = ["3b", "3b-zeepo", "3b-host", "7b-host", "3b-autocast"]
LENGTH = 2048


def config(name):
    from transformers import Qwen2Config

    width, inner, layers, heads, key_heads, tied = SHAPES[name]
    return Qwen2Config(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=key_heads, vocab_size=151936 if tied else 152064, tie_word_embeddings=tied,
        max_position_embeddings=4096, use_cache=False)


def run(row, steps):
    import torch
    from transformers import AutoModelForCausalLM

    shape, batch, times, options = ROWS[row]
    start = time.perf_counter()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config(shape), attn_implementation="sdpa", dtype=torch.bfloat16)
    autocast = row.endswith("autocast")
    if autocast:
        model.float()  # of the same weights
    for block in model.model.layers:
        block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 150000, (times, batch, LENGTH), generator=generator).cuda()
    if options is not None:
        import zeepo

        zeepo.init(model, optimizer, **options)
    ready = time.perf_counter() - start
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        total = torch.zeros((), device="cuda")
        for part in ids:
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = model(input_ids=part, labels=part).loss / times
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    later = sorted(seconds[min(3, steps - 1):])
    result = {
        "row": row,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_second": round(batch * times * LENGTH / later[len(later) // 2]),
        "seconds": [round(value, 3) for value in seconds],
        "losses": [round(value, 4) for value in losses],
        "torch_gib": round(torch.cuda.max_memory_reserved() / 2**30, 1),
        "ready_seconds": round(ready, 1),
    }
    if options is not None:
        peak = zeepo.report()["ranks"][0]["peak_bytes"]
        result["zeepo_gib"] = {tier: round(peak[tier]["total"] / 2**30, 2) for tier in ("device", "host")}
        result["host_bytes_a_parameter"] = round(peak["host"]["total"] / result["parameters"], 3)
    result["resident_set_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)
    print(json.dumps(result), flush=True)
    os._exit(0)  # what is trained is of no use: closing would copy all of it


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--here", action="store_true", help="one row, in this process")
    parser.add_argument("row", nargs="*")
    arguments = parser.parse_args()
    for row in arguments.row:
        if row not in ROWS:
            parser.error(f"no such row: {row}; there are {' '.join(ROWS)}")
    if arguments.here:
        return run(arguments.row[0], arguments.steps)
    found, failed = {}, 0
    for row in arguments.row or USUAL:
        command = [sys.executable, __file__, "--here", "--steps", str(arguments.steps), row]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        if done.returncode:
            failed = 1
            continue
        found[row] = json.loads(done.stdout.splitlines()[-1])
    print("| row | tokens/s | of plain | zeepo: device, host GiB | PyTorch GiB | host bytes a parameter |")
    print("|---|---|---|---|---|---|")
    for row, result in found.items():
        plain = found.get(ROWS[row][0])
        part = f"{result['tokens_per_second'] / plain['tokens_per_second']:.1%}" if plain else ""
        tiers = result.get("zeepo_gib", {"device": 0, "host": 0})
        print(f"| {row} | {result['tokens_per_second']} | {part} | {tiers['device']}, {tiers['host']} | "
              f"{result['torch_gib']} | {result.get('host_bytes_a_parameter', '')} |")
    return failed


if __name__ == "__main__":
    sys.exit(main())
