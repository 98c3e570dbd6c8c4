#!/usr/bin/env python3
"""checkpoint.py ZEEPO FOLDER [options of zeepo train]: what checkpoints cost a run, and how fast they reach the disk.

Runs with and without checkpoints take turns, in the same minute. Printed are the mean step of both, and the bytes a second of
each checkpoint beside what one plain writer with fsync reaches in the same folder. `--every N` is the distance of checkpoints, `--turns N` how often each runs.
"""
import json
import os
import shutil
import subprocess
import sys
import time

zeepo, folder, options = sys.argv[1], sys.argv[2], sys.argv[3:]


def own(name, default):
    """An option of this script, taken out of the others."""
    if name not in options:
        return default
    at = options.index(name)
    value = int(options[at + 1])
    del options[at:at + 2]
    return value


every, turns = own("--every", 10), own("--turns", 2)
os.makedirs(folder, exist_ok=True)


def disk_rate(size=4 << 30, block=16 << 20):
    """Bytes a second of a plain write, the last byte on the disk."""
    data = os.urandom(block)
    path = os.path.join(folder, "plain")
    start = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // block):
            file.write(data)
        os.fsync(file.fileno())
    seconds = time.monotonic() - start
    os.unlink(path)
    return size / seconds


def run(extra):
    log = os.path.join(folder, "log.jsonl")
    subprocess.run([zeepo, "train", *options, *extra, "--log", log], check=True, stderr=subprocess.DEVNULL)
    events = [json.loads(line) for line in open(log)]
    times = [event["seconds"] for event in events if event["event"] == "step" and event["step"] > every]
    saves = [event for event in events if event["event"] == "checkpoint"]
    return sum(times) / len(times), saves, events[-1]["weights_hash"]


plain, saved, rates, hashes = [], [], [], set()
disks = []
for turn in range(turns):
    disks.append(disk_rate())
    mean, _, weights = run([])
    plain.append(mean)
    hashes.add(weights)
    checkpoints = os.path.join(folder, "checkpoints")
    mean, saves, weights = run(["--checkpoint-dir", checkpoints, "--checkpoint-every", str(every), "--checkpoint-keep", "1"])
    shutil.rmtree(checkpoints)
    saved.append(mean)
    hashes.add(weights)
    rates += [save["bytes"] / save["seconds"] for save in saves[:-1]]
print(f"mean step without checkpoints: {', '.join(f'{x:.3f}' for x in plain)} s")
print(f"mean step with one every {every}: {', '.join(f'{x:.3f}' for x in saved)} s, "
      f"{100 * (sum(saved) / sum(plain) - 1):+.1f}%")
print(f"checkpoints of {saves[0]['bytes'] / 2**30:.2f} GiB: {', '.join(f'{rate / 1e9:.2f}' for rate in rates)} GB/s; "
      f"a plain writer {', '.join(f'{rate / 1e9:.2f}' for rate in disks)} GB/s")
print("the same weights" if len(hashes) == 1 else "OTHER WEIGHTS")
