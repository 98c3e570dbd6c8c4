#!/usr/bin/env python3
"""Sums up what libkernel_times.so wrote (bench/cuda_injection): where the GPU's time goes in the last steps.

    kernel_times.py times.tsv.gz [--steps 2] [--kernels 30]

A step ends with the last kernel that steps weights. Classes are told by the kernels' names; a gap is the time in which
nothing ran on the GPU.
"""
import argparse
import collections
import gzip
import re
import subprocess
import sys

CLASSES = [
    ("matrix products", r"nvjet|gemm|cutlass|cublasLt"),
    ("attention backward", r"dq_kernel|dkv_kernel|row_terms|add_parts|attention_backward|plain_backward"),
    ("attention forward", r"attention|forward_kernel|sdpa|cudnn"),
    ("gradient norm", r"sum_squares|finish_norm"),
    ("norm backward", r"norm(_heads)?_backward"),
    ("norm", r"norm(_heads)?_kernel"),
    ("swiglu", r"swiglu"),
    ("rotary", r"rotate"),
    ("cross entropy", r"cross_entropy"),
    ("bias gradient", r"sum_rows"),
    ("second pass of sums", r"add_partials"),
    ("quantising to 8 bits", r"largest_kernel|quantise"),
    ("embedding", r"embed|equal_ids|cub::|count_up"),
    ("weights' step", r"AdamStep|SgdStep|adam_bytes"),
    ("gradients summed in fp32", r"map_kernel.*(Sum|Same), float, "),
    ("gradients summed in 16 bits", r"map_kernel.*Sum"),
    ("copies and fills", r"^\[|copy"),
]


def class_of(name):
    return next((label for label, pattern in CLASSES if re.search(pattern, name)), "other")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times")
    parser.add_argument("--steps", type=int, default=2, help="how many of the last steps to look at")
    parser.add_argument("--kernels", type=int, default=30, help="how many kernels to list")
    options = parser.parse_args()
    opened = gzip.open(options.times, "rt") if options.times.endswith(".gz") else open(options.times)
    rows = []
    for line in opened:
        begin, end, stream, grid, name = line.rstrip("\n").split("\t")
        rows.append((int(begin), int(end), grid, name))
    names = sorted({row[3] for row in rows})
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    shown = dict(zip(names, plain.stdout.split("\n")))
    rows = sorted((begin, end, grid, shown[name]) for begin, end, grid, name in rows)
    # The last weight update of each step: the next one comes a whole forward pass later.
    updates = [i for i, row in enumerate(rows) if class_of(row[3]) == "weights' step"]
    ends = [i for i, after in zip(updates, updates[1:] + [None]) if after is None or after - i > 50]
    if len(ends) <= options.steps:
        sys.exit(f"{options.times} has {len(ends)} steps: {options.steps} after the first are wanted")
    rows = rows[ends[-1 - options.steps] + 1 : ends[-1] + 1]

    total = (rows[-1][1] - rows[0][0]) / options.steps
    classes, kernels = collections.Counter(), collections.defaultdict(list)
    busy_until, gaps = rows[0][0], 0
    for begin, end, grid, name in rows:
        gaps += max(0, begin - busy_until)
        busy_until = max(busy_until, end)
        classes[class_of(name)] += end - begin
        kernels[name, grid].append(end - begin)
    classes["gaps"] = gaps
    print(f"{total * 1e-6:.1f} ms a step, {len(rows) / options.steps:.0f} kernels and copies")
    for label, time in classes.most_common():
        print(f"{label:28} {time / options.steps * 1e-6:8.2f} ms {100 * time / options.steps / total:5.1f}%")
    print()
    for (name, grid), times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[: options.kernels]:
        times.sort()
        print(f"{sum(times) / options.steps * 1e-6:8.2f} ms {len(times) / options.steps:6.0f} x"
              f" {times[len(times) // 2] * 1e-3:8.1f} us  {grid:14} {name[:150]}")


if __name__ == "__main__":
    main()
