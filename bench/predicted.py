#!/usr/bin/env python3
"""Predicted steps beside measured ones on the CPU, over links so slow that they bound the step.

bench/predicted.py ZEEPO [--steps N]: probes the machine, plans each row with `zeepo plan --simulate-link`, trains with the
flags of the plan and `--no-tune`, and prints both times and their ratio. What is slow are the links, which sleep: the
machine need not be quiet. Rows with two ranks run under mpirun.
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
# Ranks, stage, the plan's name, the links.
ROWS = [
    (1, 0, "optimizer host", "host-device=20MB/s"),
    (1, 0, "optimizer+params host", "host-device=20MB/s"),
    (1, 0, "optimizer nvme", "nvme=60MB/s"),
    (1, 0, "params host, opt. nvme", "host-device=60MB/s,nvme=60MB/s"),
    (2, 2, "resident", "ranks=15MB/s"),
    (2, 3, "resident", "ranks=15MB/s"),
    (2, 3, "optimizer+params host", "host-device=20MB/s,ranks=20MB/s"),
]


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

    def run_options(self, links):
        return ["--model", self.folder, "--device", "cpu", "--dtype", "fp32", "--seq-len", LENGTH, "--micro-batch", BATCH,
                "--memory", MEMORY, "--nvme-path", self.folder, "--simulate-link", links]

    def row(self, ranks, stage, name, links):
        answer = json.loads(self.zeepo(1, "plan", *self.run_options(links), "--ranks", ranks, "--json"))
        plan = next(p for p in answer["exact"]["plans"] if p["stage"] == stage and p["name"] == name)
        log = self.folder / "run.jsonl"
        self.zeepo(ranks, "train", *self.run_options(links), "--data", self.folder / "tokens.bin", "--from-scratch",
                   "--steps", self.steps, "--no-tune", "--log", log, *plan["flags"].split())
        events = [json.loads(line) for line in log.read_text().splitlines()]
        steps = [event["seconds"] for event in events if event["event"] == "step"][2:]
        return plan["time"], statistics.median(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder)
        bench = Bench(options.program, folder, options.steps)
        for ranks in sorted({row[0] for row in ROWS}):
            bench.probe(ranks)
        print("| ranks, stage | placement | links | predicted s | measured s | | bound |\n|---|---|---|---|---|---|---|")
        for ranks, stage, placement, links in ROWS:
            time, measured = bench.row(ranks, stage, placement, links)
            predicted = time["step_seconds"]
            print(f"| {ranks}, {stage} | {placement} | {links} | {predicted:.3f} | {measured:.3f} | "
                  f"{100 * (predicted / measured - 1):+.1f}% | {time['bound']} |", flush=True)


if __name__ == "__main__":
    main()
