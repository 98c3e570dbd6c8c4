#!/usr/bin/env python3
"""The demo's model trained exactly and with coded weights and gradients: how far the losses are from each other.

    bench/wire_loss.py PROGRAM CORPUS [STEPS] [MICRO_BATCH] [RATE]

Four ranks in two nodes (--node-size 2), the same seed and batches. CORPUS is a text, such as the one that examples/demo/run.sh
writes. Prints every tenth of the curves as means of twenty steps, how the means of the last fifty steps differ, and the largest
gradient norm after the first ten steps. A norm that jumps tells of an instability, after which any two runs go ways of their own,
exact ones too: compare at a rate without one. The demo's own rate, 3e-3, has one at steps 17 to 19 (RESULTS.md); hence 1e-3.
"""
import json
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = {"exact": (), "int8 weights": ("--gather-dtype", "int8"),
        "int4 gradients": ("--reduce-dtype", "int4"), "int4, feedback": ("--reduce-dtype", "int4", "--reduce-feedback"),
        "all three": ("--gather-dtype", "int8", "--reduce-dtype", "int4", "--node-copy")}
DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo"


def train(program, corpus, steps, micro_batch, rate, options):
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4", program, "train", "--device", "cpu",
             "--model", DEMO, "--from-scratch", "--data", corpus, "--seq-len", "256", "--micro-batch", micro_batch, "--steps", steps,
             "--lr", rate, "--schedule", "cosine", "--warmup", "20", "--seed", "1", "--threads", "1", "--stage", "3", "--node-size",
             "2", "--log", "-", *options]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, options))}: {done.stderr[-2000:]}")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    return [step["loss"] for step in steps], max(step["grad_norm"] for step in steps[10:])


def main():
    program, corpus = sys.argv[1:3]
    steps, micro_batch, rate = (sys.argv[3:6] + ["300", "2", "1e-3"][len(sys.argv) - 3:])[:3]
    curves = {}
    for name, options in RUNS.items():
        curves[name], norm = train(program, corpus, steps, micro_batch, rate, options)
        last = statistics.mean(curves[name][-50:])
        difference = 100 * (last / statistics.mean(curves["exact"][-50:]) - 1)
        print(f"{name:15} {last:.4f}  {difference:+.2f}%, largest norm {norm:.2f}", flush=True)
    count = len(curves["exact"])
    print("\nstep " + "".join(f"{name:>16}" for name in curves))
    for at in range(count // 10, count + 1, max(1, count // 10)):
        print(f"{at:4} " + "".join(f"{statistics.mean(curve[max(0, at - 20):at]):16.4f}" for curve in curves.values()))


if __name__ == "__main__":
    main()
