#!/usr/bin/env python3
"""A rank at half speed beside a rank at full speed: what --balance auto brings of what both can do together.

    bench/balance.py PROGRAM CORPUS [TURNS] [STEPS] [MICRO_BATCH]

Two ranks with one thread each on this machine train the demo's model. The slow rank is stopped and woken in turns, so that it has half
of its time (this file itself is its wrapper). Prints tokens/s of both at full speed, with a slow rank and equal shares, and with a
slow rank and --balance auto; the last beside 1.5 / 2 of the first, which is what the speeds together allow. The three in turns, the
best of each: other work on the machine makes all of them slower.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo"
SLOW_RANK, TURN_SECONDS = "1", 0.004


def run_at_half_speed(words):
    """The program as a child that runs in every other turn, as long as it lives."""
    child = subprocess.Popen(words)
    while child.poll() is None:
        for turn in (signal.SIGSTOP, signal.SIGCONT):
            if child.poll() is None:
                child.send_signal(turn)
                time.sleep(TURN_SECONDS)
    sys.exit(child.returncode)


def tokens_per_second(program, corpus, steps, micro_batch, slow, *options):
    words = [program, "train", "--device", "cpu", "--model", DEMO, "--from-scratch", "--data", corpus, "--seq-len", "128", "--micro-batch",
             micro_batch, "--steps", steps, "--seed", "1", "--threads", "1", "--stage", "3", "--log", "-", *options]
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    if slow:
        launch += [sys.executable, __file__, "--as-rank"]
    done = subprocess.run([str(word) for word in launch + words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    plan = next(event for event in events if event["event"] == "plan")
    rates = [event["tokens_per_second"] for event in events if event["event"] == "step"]
    return statistics.median(rates[2:]), plan.get("balance")


def main():
    program, corpus = sys.argv[1:3]
    turns, steps, micro_batch = (sys.argv[3:6] + ["3", "12", "8"][len(sys.argv) - 3:])[:3]
    runs = {"both at full speed": (False,), "one at half, equal shares": (True,), "one at half, --balance auto": (True, "--balance", "auto")}
    best = dict.fromkeys(runs, 0)
    for _ in range(int(turns)):
        for name, options in runs.items():
            rate, balance = tokens_per_second(program, corpus, steps, micro_batch, *options)
            best[name] = max(best[name], rate)
            print(f"{name:28} {rate:8.0f} tokens/s" + (f", rows {balance['rows']}, speeds {balance['speeds']}" if balance else ""), flush=True)
    full, equal, shared = best.values()
    print(f"--balance auto: {shared / equal:.2f} times equal shares, {100 * shared / (0.75 * full):.0f}% of what the speeds together allow")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-rank"]:
        if os.environ.get("OMPI_COMM_WORLD_RANK") == SLOW_RANK:
            run_at_half_speed(sys.argv[2:])
        os.execvp(sys.argv[2], sys.argv[2:])
    main()
