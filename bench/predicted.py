#!/usr/bin/env python3
"""Predicted steps beside measured ones: on the CPU over links so slow that they bound the step, or on a GPU.

bench/predicted.py ZEEPO [--device cpu|cuda] [--steps N] [--random N [--seed S]]: probes the machine, plans each row with
`zeepo plan`, trains with the flags of the plan and `--no-tune`, and prints both times and their ratio, and the tier and
kind whose bytes are farthest from the plan's. Rows with several ranks run under mpirun. With --random the rows are drawn.
On the CPU links are slow, which sleep (--simulate-link): the machine need not be quiet. On a GPU they are the machine's
own; several ranks share it by NCCL, so that their bytes are compared and not their times. --disk DIR: for states in files.
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



class OnCpu:
    name, layers, hidden, heads, vocab, length, batch = "cpu", 6, 384, 6, 4096, 64, 1
    memory = "device=2GiB,host=2GiB,nvme=2GiB"
    dtypes = ["fp32", "bf16", "fp16"]
    probes = 3  # of which the least disturbed counts


class OnGpu:
    name, layers, hidden, heads, vocab, length, batch = "cuda", 4, 2048, 16, 32000, 2048, 4
    memory = "device=60GiB,host=20GiB,nvme=20GiB"
    dtypes = ["bf16", "bf16", "fp16", "fp32"]
    probes = 1


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


PLAIN_ROWS = [(1, 0, name, "", "bf16", 2) for name in ("resident", "recompute activations", "optimizer host",
                                                      "optimizer+params host", "optimizer nvme")]


def drawn(count, seed, device):
    """On the CPU rows that move something, over links that bound the step."""
    draw = random.Random(seed)
    moved = {"optimizer host": ["host-device"], "optimizer+params host": ["host-device"], "optimizer nvme": ["nvme"],
             "params host, opt. nvme": ["host-device", "nvme"], "all nvme": ["nvme"], "resident": [],
             "recompute activations": []}
    rows = []
    while len(rows) < count:
        ranks, name = draw.choice([1, 2] if device is OnCpu else [1, 1, 1, 2]), draw.choice(list(moved))
        slow = moved[name] + (["ranks"] if ranks > 1 else [])
        if slow or device is OnGpu:
            links = ",".join(f"{link}={draw.randrange(15, 60)}MB/s" for link in slow if device is OnCpu)
            rows.append((ranks, draw.randrange(4) if ranks > 1 else 0, name, links, draw.choice(device.dtypes),
                         draw.choice([1, 2, 3])))
    return rows


def farthest(plan, held):
    """The share by which bytes of a tier and kind differ most, of those that are a hundredth of the tier."""
    apart = [(held[tier][kind] / planned - 1, tier, kind) for tier, kinds in plan.items()
             for kind, planned in kinds.items() if planned > 0.01 * kinds["total"]]
    return max(apart, key=lambda entry: abs(entry[0]), default=(0, "", ""))


def make_model(folder, device):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": device.hidden,
              "intermediate_size": 4 * device.hidden, "num_hidden_layers": device.layers,
              "num_attention_heads": device.heads, "num_key_value_heads": device.heads, "vocab_size": device.vocab,
              "tie_word_embeddings": True, "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    (folder / "tokens.bin").write_bytes(
        b"".join(struct.pack("<H", draw.randrange(device.vocab)) for _ in range(1 << 16)))


class Bench:
    def __init__(self, program, folder, steps, device, disk):
        self.program, self.folder, self.steps, self.device, self.disk = program, folder, steps, device, disk or folder
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        if device is OnCpu:
            self.environment["OMP_NUM_THREADS"] = "1"

    def zeepo(self, ranks, *words):
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
        if launch and self.device is OnGpu:  # NCCL takes ranks that share a GPU when each has a host of its own
            launch += ["sh", "-c", 'NCCL_HOSTID=$$ NCCL_SOCKET_IFNAME=lo exec "$0" "$@"']
        done = subprocess.run([*launch, self.program, *map(str, words)], env=self.environment, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def probe(self, ranks):
        """The least disturbed of some."""
        best = None
        for _ in range(self.device.probes):
            rates = json.loads(self.zeepo(ranks, "probe", "--device", self.device.name, "--nvme-path", self.disk, "--json"))
            kept = next((self.folder / "cache/zeepo").glob(f"probe-*-{self.device.name}-{ranks}.json"))
            if best is None or rates["matmul_flops"]["fp32"] > best[0]:
                best = rates["matmul_flops"]["fp32"], kept.read_text()
        kept.write_text(best[1])

    def run_options(self, links, dtype, micro_steps):
        device = self.device
        return ["--model", self.folder, "--device", device.name, "--dtype", dtype, "--seq-len", device.length,
                "--micro-batch", device.batch, "--grad-accum", micro_steps, "--memory", device.memory, "--nvme-path",
                self.disk, *(["--simulate-link", links] if links else [])]

    def row(self, ranks, stage, name, *asked):
        options = self.run_options(*asked)
        answer = json.loads(self.zeepo(1, "plan", *options, "--ranks", ranks, "--json"))
        plan = next(p for p in answer["exact"]["plans"] if p["stage"] == stage and p["name"] == name)
        log = self.folder / "run.jsonl"
        carrier = ["--comm", "nccl"] if ranks > 1 and self.device is OnGpu else []
        self.zeepo(ranks, "train", *options, *carrier, "--data", self.folder / "tokens.bin", "--from-scratch",
                   "--steps", self.steps, "--no-tune", "--log", log, *plan["flags"].split())
        events = [json.loads(line) for line in log.read_text().splitlines()]
        steps = [event["seconds"] for event in events if event["event"] == "step"][2:]
        return plan.get("time"), statistics.median(steps), farthest(plan["bytes"], events[-1]["ranks"][0]["peak_bytes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--disk", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw so many rows instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = OnCpu if options.device == "cpu" else OnGpu
    if options.random > 0:
        rows = drawn(options.random, options.seed, device)
    else:
        rows = ROWS if device is OnCpu else PLAIN_ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder, device)
        bench = Bench(options.program, folder, options.steps, device, options.disk)
        for ranks in sorted({row[0] for row in rows}):
            if ranks == 1 or device is OnCpu:
                bench.probe(ranks)
        print("| ranks, stage | placement | links | dtype, micro-steps | predicted s | measured s | | bound | bytes at most |\n"
              "|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            ranks, stage, placement, links, dtype, micro_steps = row
            time, measured, (apart, tier, kind) = bench.row(*row)
            times = "| | |"
            if time is not None:
                predicted = time["step_seconds"]
                times = f"{predicted:.3f} | {measured:.3f} | {100 * (predicted / measured - 1):+.1f}% | {time['bound']}"
            print(f"| {ranks}, {stage} | {placement} | {links} | {dtype}, {micro_steps} | {times} | "
                  f"{100 * apart:+.1f}% {tier} {kind} |", flush=True)


if __name__ == "__main__":
    main()
