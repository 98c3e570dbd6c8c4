"""PyTorch's fused CPU AdamW over GPT-2's 124M parameters in fp32: the step alone, as bench_adam times it.

usage: torch_adam.py TURNS; prints the median and the best time of a step, and GB/s for 28 bytes a parameter.
"""
import sys
import time

import torch

PARAMETERS = 124_439_808


def main():
    parameter = torch.nn.Parameter(torch.ones(PARAMETERS))
    parameter.grad = torch.full_like(parameter, 0.5)
    optimizer = torch.optim.AdamW([parameter], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for _ in range(int(sys.argv[1]) + 1):
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    later = sorted(seconds[1:])
    median, best = later[len(later) // 2], later[0]
    gb = 28 * PARAMETERS / 1e9
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads: median {median * 1e3:.1f} ms "
          f"({gb / median:.1f} GB/s), best {best * 1e3:.1f} ms ({gb / best:.1f} GB/s)")


main()
