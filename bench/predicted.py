#!/usr/bin/env python3
"""Predicted steps beside measured ones on the CPU, over links so slow that they bound the step.

bench/predicted.py ZEEPO [--steps N] [--random N [--seed S]]: probes the machine, plans each row with `zeepo plan
--simulate-link`, trains with the flags of the plan and `--no-tune`, and prints both times and their ratio, and the tier
and kind whose bytes are farthest from the plan's. What is slow are the links, which sleep: the machine need not be
quiet. Rows with two ranks run under mpirun. With --random the rows are drawn.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

LAYERS, HIDDEN, VOCAB, LENGTH, BATCH = 6, 384, 4096, 64, 1
MEMORY = "device=2GiB,host=2GiB,nvme=2GiB"
# Ranks, stage, the plan's name, the links, the dtype, micro-steps.
ROWS = [
    (1, 0, "optimizer host", "host-device=20MB/s", "fp32", 1),
    (1, 0, "optimizer+params host", "host-device=20MB/s", "fp32", 1),
    (1, 0, "optimizer nvme", "nvme=60MB/s", "fp32", 1),
    (1, 0, "params host, opt. nvme", "host-device=60MB/s,nvme=60MB/s", "fp32", 1),
    (2, 2, "resident", "ranks=15MB/s", "fp32", 1),
    (2, 3, "resident", "ranks=15MB/s", "fp32", 1),
    (2, 3, "optimizer+params host", "host-device=20MB/s,ranks=20MB/s", "fp32", 1),
]


def drawn(count, seed):
    """Rows that move something, over links that bound the step."""
    draw = random.Random(seed)
    moved = {"optimizer host": ["host-device"], "optimizer+params host": ["host-device"], "optimizer nvme": ["nvme"],
             "params host, opt. nvme": ["host-device", "nvme"], "all nvme": ["nvme"], "resident": [],
             "recompute activations": []}
    rows = []
    while len(rows) < count:
        ranks, name = draw.choice([1, 2]), draw.choice(list(moved))
        slow = moved[name] + (["ranks"] if ranks > 1 else [])
        if slow:
            links = ",".join(f"{link}={draw.randrange(15, 60)}MB/s" for link in slow)
            rows.append((ranks, draw.randrange(4) if ranks > 1 else 0, name, links, draw.choice(["fp32", "bf16", "fp16"]),
                         draw.choice([1, 2, 3])))
    return rows


def farthest(plan, held):
    """The share by which bytes of a tier and kind differ most, of those that are a hundredth of the tier."""
    apart = [(held[tier][kind] / planned - 1, tier, kind) for tier, kinds in plan.items()
             for kind, planned in kinds.items() if planned > 0.01 * kinds["total"]]
    return max(apart, key=lambda entry: abs(entry[0]), default=(0, "", ""))


def make_model(folder):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
              "intermediate_size": 4 * HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 6,
              "num_key_value_heads": 6, "vocab_size": VOCAB, "tie_word_embeddings": True, "hidden_act": "silu",
              "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    (folder / "tokens.bin").write_bytes(b"".join(struct.pack("<H", draw.randrange(VOCAB)) for _ in range(1 << 16)))


class Bench:
    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps = program, folder, steps
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}

    def zeepo(self, ranks, *words):
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launch, self.program, *map(str, words)], env=self.environment, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def probe(self, ranks):
        """The least disturbed of three."""
        best = None
        for _ in range(3):
            rates = json.loads(self.zeepo(ranks, "probe", "--device", "cpu", "--nvme-path", self.folder, "--json"))
            kept = next((self.folder / "cache/zeepo").glob(f"probe-*-cpu-{ranks}.json"))
            if best is None or rates["matmul_flops"]["fp32"] > best[0]:
                best = rates["matmul_flops"]["fp32"], kept.read_text()
        kept.write_text(best[1])

    def run_options(self, links, dtype, micro_steps):
        return ["--model", self.folder, "--device", "cpu", "--dtype", dtype, "--seq-len", LENGTH, "--micro-batch", BATCH,
                "--grad-accum", micro_steps, "--memory", MEMORY, "--nvme-path", self.folder, "--simulate-link", links]

    def row(self, ranks, stage, name, *asked):
        options = self.run_options(*asked)
        answer = json.loads(self.zeepo(1, "plan", *options, "--ranks", ranks, "--json"))
        plan = next(p for p in answer["exact"]["plans"] if p["stage"] == stage and p["name"] == name)
        log = self.folder / "run.jsonl"
        self.zeepo(ranks, "train", *options, "--data", self.folder / "tokens.bin", "--from-scratch",
                   "--steps", self.steps, "--no-tune", "--log", log, *plan["flags"].split())
        events = [json.loads(line) for line in log.read_text().splitlines()]
        steps = [event["seconds"] for event in events if event["event"] == "step"][2:]
        return plan["time"], statistics.median(steps), farthest(plan["bytes"], events[-1]["ranks"][0]["peak_bytes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw so many rows instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = drawn(options.random, options.seed) if options.random > 0 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder)
        bench = Bench(options.program, folder, options.steps)
        for ranks in sorted({row[0] for row in rows}):
            bench.probe(ranks)
        print("| ranks, stage | placement | links | dtype, micro-steps | predicted s | measured s | | bound | bytes at most |\n"
              "|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            ranks, stage, placement, links, dtype, micro_steps = row
            time, measured, (apart, tier, kind) = bench.row(*row)
            predicted = time["step_seconds"]
            print(f"| {ranks}, {stage} | {placement} | {links} | {dtype}, {micro_steps} | {predicted:.3f} | {measured:.3f} | "
                  f"{100 * (predicted / measured - 1):+.1f}% | {time['bound']} | {100 * apart:+.1f}% {tier} {kind} |", flush=True)


if __name__ == "__main__":
    main()
