#!/usr/bin/env python3
"""Trains Qwen2.5 shapes on one GPU and prints a row for each workload of the table in RESULTS.md.

usage: gpu_train.py [--nvme DIRECTORY] [--steps N] [--with OPTIONS] ZEEPO [ROW...]
Rows: torch 3b 3b-host 7b-host 14b 20b 0.5b-disk losses; all when none is named. Random weights, bf16 with fp32 master
weights and moments, AdamW, clip 1.0. Speeds are the median step without the first two. `torch` and `losses` need
PyTorch and transformers; `20b` needs 45 GiB of disk. Rows with states in files also measure the disk, without zeepo.
Logs stay in the folder that the last line names.
"""
import argparse
import array
import concurrent.futures
import json
import mmap
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests/data/golden"
SHAPES = {  # width, inner width, layers, heads, key heads, tied
    "0.5b": (896, 4864, 24, 14, 2, True),
    "3b": (2048, 11008, 36, 16, 2, True),
    "7b": (3584, 18944, 28, 28, 4, False),
    "14b": (5120, 13824, 48, 40, 8, False),
    "20b": (5120, 13824, 67, 40, 8, False),
}
ROWS = {  # shape, samples at once, how many times a step, steps, options
    "3b": ("3b", 4, 4, 6, []),
    "3b-host": ("3b", 4, 4, 6, ["--offload-optimizer", "host"]),
    "7b-host": ("7b", 4, 4, 14, ["--offload-optimizer", "host"]),
    "14b": ("14b", 2, 32, 4, ["--offload-optimizer", "host=0.85", "--step-below", "0.44"]),
    "20b": ("20b", 1, 1, 2, ["--offload-optimizer", "host=0.55,nvme=0.22", "--activation-checkpointing"]),
    "0.5b-disk": ("0.5b", 16, 1, 8, ["--offload-optimizer", "nvme"]),
}
LENGTH = 2048


def config(name):
    width, inner, layers, heads, key_heads, tied = SHAPES[name]
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 151936 if tied else 152064,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "tie_word_embeddings": tied,
    }


def gpu_bytes():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) * 2**20


class GpuMemory:
    """The most that was in use at once, and in use before."""

    def __enter__(self):
        self.before, self.most, self.stop = gpu_bytes(), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.wait(0.5):
            self.most = max(self.most, gpu_bytes())

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class Disk:
    """A file that is read and written past the cache by many threads, without zeepo: what the disk gives."""

    REQUEST, REQUESTS, THREADS = 4 << 20, 1024, 32

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / f"rate-{os.getpid()}"

    def rates(self):
        """GB/s of reading alone, of writing alone, and of both at once together."""
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            os.unlink(self.path)
            os.posix_fallocate(self.file, 0, self.REQUEST * self.REQUESTS)
            self.rate(os.pwritev)  # a file that was never written reads as zeros, without the disk
            read, write = self.rate(os.preadv), self.rate(os.pwritev)
            return read, write, self.rate(os.preadv, os.pwritev)
        finally:
            os.close(self.file)

    def rate(self, *calls):
        buffers = [mmap.mmap(-1, self.REQUEST) for _ in range(self.THREADS)]
        for buffer in buffers:
            buffer.write(os.urandom(self.REQUEST))

        def requests(thread):
            for number in range(thread, self.REQUESTS, self.THREADS):
                if calls[number // self.THREADS % len(calls)](self.file, [buffers[thread]], number * self.REQUEST) != self.REQUEST:
                    raise RuntimeError(f"{self.path}: a request of {self.REQUEST} bytes was cut short")

        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.THREADS) as threads:
            list(threads.map(requests, range(self.THREADS)))
        return self.REQUEST * self.REQUESTS / 1e9 / (time.monotonic() - start)


def lines(path, event):
    return [line for line in map(json.loads, open(path)) if line["event"] == event]


class Bench:
    def __init__(self, zeepo, nvme, steps, further, folder):
        self.zeepo, self.nvme, self.steps, self.further, self.folder = zeepo, nvme, steps, further, folder
        draw = random.Random(1)
        words = array.array("I", (draw.randrange(150000) for _ in range(64 * LENGTH + 1)))
        self.tokens = folder / "tokens.bin"
        self.tokens.write_bytes(words.tobytes())
        for name in SHAPES:
            (folder / name).mkdir()
            (folder / name / "config.json").write_text(json.dumps(config(name)))

    def train(self, name, *options, device="cuda"):
        log = self.folder / f"{name}.log"
        start = time.monotonic()
        with GpuMemory() as gpu, open(self.folder / f"{name}.txt", "w") as out:
            run = subprocess.run([self.zeepo, "train", "--device", device, "--log", log, *options], stdout=out, stderr=out)
        if run.returncode:
            raise RuntimeError(f"{name}: zeepo exits {run.returncode}: " + (self.folder / f"{name}.txt").read_text()[-500:])
        return log, gpu, time.monotonic() - start

    def row(self, name):
        shape, batch, accumulation, steps, options = ROWS[name]
        options = options + self.further
        steps = self.steps or steps
        where = ["--nvme-path", self.nvme] if any("nvme" in option for option in options) else []
        log, gpu, seconds = self.train(
            name, "--model", self.folder / shape, "--from-scratch", "--data", self.tokens, "--seq-len", str(LENGTH),
            "--micro-batch", str(batch), "--grad-accum", str(accumulation), "--steps", str(steps), *options, *where)
        done, plan, end = lines(log, "step"), lines(log, "plan")[0], lines(log, "summary")[0]
        rates = sorted(done[min(2, len(done) - 1) :], key=lambda step: step["seconds"])
        middle = rates[len(rates) // 2]
        peak, planned = end["ranks"][0]["peak_bytes"], plan["device"]["arena_bytes"]
        gib = lambda tier: f"{peak[tier]['total'] / 2**30:.1f}"
        print(f"| {name} {batch} x {LENGTH} x {accumulation} {' '.join(options)} | {middle['tokens_per_second']:.0f} "
              f"({middle['tflops']:.0f}) | {middle['seconds']:.3f} s | {gib('device')}, {gib('host')}, {gib('nvme')} | "
              f"{(gpu.most - gpu.before) / planned:.3f} | {seconds:.0f} s |", flush=True)
        print("  losses " + " ".join(str(step["loss"]) for step in done), flush=True)
        io = end["ranks"][0]["io_bytes"]
        if io["read"]:
            print(f"  files: {io['read'] / 1e9:.2f} GB read, {io['write'] / 1e9:.2f} GB written a step, together "
                  f"{(io['read'] + io['write']) / 1e9 / middle['seconds']:.2f} GB/s", flush=True)
            read, write, mixed = Disk(self.nvme).rates()
            print(f"  disk without zeepo: read {read:.2f}, write {write:.2f}, both at once {mixed:.2f} GB/s; those bytes take it "
                  f"{(io['read'] + io['write']) / 1e9 / mixed:.2f} s at once, "
                  f"{io['read'] / 1e9 / read + io['write'] / 1e9 / write:.2f} s one after the other", flush=True)

    def torch(self, *arguments):
        run = subprocess.run([sys.executable, HERE / "torch_gpu.py", *map(str, arguments)], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError("torch_gpu.py: " + run.stderr[-500:])
        return json.loads(run.stdout.splitlines()[-1])

    def torch_row(self):
        shape, batch, accumulation, steps, _ = ROWS["3b"]
        found = self.torch("speed", self.folder / shape / "config.json", batch, LENGTH, accumulation, steps)
        print(f"| 3b {batch} x {LENGTH} x {accumulation}, PyTorch {found['torch']}, blocks compiled | "
              f"{found['tokens_per_second']:.0f} | | {found['device_gib']:.1f} | | |", flush=True)

    def losses_row(self, steps=50, length=48, batch=4):
        """Fifty steps beside PyTorch's, on the tiny models of the tests."""
        for model in ("gpt2-tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny", "mistral-tiny"):
            rate = json.loads((GOLDEN / model / "golden.json").read_text())["optimizer"]["lr"]
            worst = {}
            peers = self.torch("losses", GOLDEN / model, length, batch, steps, rate)
            for dtype in ("fp32", "bf16"):
                for device in ("cuda", "cpu"):
                    log, _, _ = self.train(
                        f"{model}-{dtype}-{device}", "--model", GOLDEN / model, "--data", GOLDEN / model / "tokens.bin",
                        "--no-shuffle", "--seq-len", str(length), "--micro-batch", str(batch), "--steps", str(steps),
                        "--lr", str(rate), "--dtype", dtype, device=device)
                    ours = [step["loss"] for step in lines(log, "step")]
                    worst[dtype, device] = max(abs(a - b) / b for a, b in zip(ours, peers[dtype], strict=True))
            print(f"| {model}, {steps} steps, furthest from PyTorch | " +
                  " | ".join(f"{dtype} {device} {value:.1e}" for (dtype, device), value in worst.items()) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvme", default=tempfile.gettempdir(), help="where files of states go")
    parser.add_argument("--steps", type=int, help="for each row, in place of its own number")
    parser.add_argument("--with", dest="further", default="", help="further options of zeepo train, as '--sum-order local'")
    parser.add_argument("zeepo")
    parser.add_argument("row", nargs="*")
    arguments = parser.parse_args()
    special = {"torch": Bench.torch_row, "losses": Bench.losses_row}
    known = [*special, *ROWS]
    for row in arguments.row:
        if row not in known:
            parser.error(f"no such row: {row}; there are {' '.join(known)}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="zeepo-gpu-"))
    bench = Bench(arguments.zeepo, arguments.nvme, arguments.steps, arguments.further.split(), folder)
    print("| workload | tokens/s (TFLOP/s) | a step | device, host, files GiB | GPU memory seen / planned | whole run |")
    print("|---|---|---|---|---|---|", flush=True)
    failed = 0
    for row in arguments.row or known:
        try:
            special[row](bench) if row in special else bench.row(row)
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            failed = 1
    print(f"logs in {folder}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
