#!/usr/bin/env python3
"""How far losses of `import zeepo` are from plain PyTorch's: bench/torch_agreement.py [STEPS].

The CNN that people write for MNIST, random images, float32, one thread, resident. For each optimizer the largest relative
distance of a loss in 50 steps; beside AdamW a copy of PyTorch's that subtracts the decay as zeepo does, p - p * (lr * wd),
where PyTorch multiplies by 1 - lr * wd rounded to float32.
"""
import math
import sys

import torch
from torch import nn, optim

import zeepo

RATE, BATCH = 1e-3, 64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Linear(32 * 26 * 26, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.relu(self.conv(x)), 1))


class SubtractingAdamW(optim.AdamW):
    """PyTorch's operations in their order, but for the decay."""

    @torch.no_grad()
    def step(self):
        (group,) = self.param_groups
        rate, (beta1, beta2) = group["lr"], group["betas"]
        for p in group["params"]:
            state = self.state[p]
            if not state:
                state.update(number=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
            state["number"] += 1
            p.sub_(p * (rate * group["weight_decay"]))
            state["first"].lerp_(p.grad, 1 - beta1)
            state["second"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
            root = (state["second"].sqrt() / math.sqrt(1 - beta2 ** state["number"])).add_(group["eps"])
            p.addcdiv_(state["first"], root, value=-rate / (1 - beta1 ** state["number"]))


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=RATE, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=RATE),
    "AdamW": lambda p: optim.AdamW(p, lr=RATE),
}


def losses(make, clip, steps, with_zeepo=False):
    torch.manual_seed(0)
    model = Net()
    optimizer = make(model.parameters())
    draw = torch.Generator().manual_seed(1)
    images, labels = torch.rand(10 * BATCH, 1, 28, 28, generator=draw), torch.randint(10, (10 * BATCH,), generator=draw)
    if with_zeepo:
        zeepo.init(model, optimizer, clip=clip)
    seen = []
    for number in range(steps):
        part = slice(BATCH * (number % 10), BATCH * (number % 10 + 1))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        loss.backward()
        if clip and not with_zeepo:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        seen.append(loss.item())
    if with_zeepo:
        zeepo.close()
    return seen


def distance(seen, expected):
    return max(abs(a - b) / abs(b) for a, b in zip(seen, expected))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    torch.set_num_threads(1)
    print(f"| optimizer | clip | zeepo | decay subtracted |  (torch {torch.__version__}, {steps} steps)\n|---|---|---|---|")
    for name, make in OPTIMIZERS.items():
        for clip in (0, 0.5):
            plain = losses(make, clip, steps)
            ours = distance(losses(make, clip, steps, with_zeepo=True), plain)
            other = ""
            if name == "AdamW":
                other = f"{distance(losses(lambda p: SubtractingAdamW(p, lr=RATE), clip, steps), plain):.1e}"
            print(f"| {name} | {clip or 'none'} | {ours:.1e} | {other} |", flush=True)


if __name__ == "__main__":
    main()
