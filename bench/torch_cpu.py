"""PyTorch's time and memory for the step that bench/torch_cpu.sh gives zeepo: GPT-2 small, fp32, AdamW, clip 1.0.

usage: torch_cpu.py STEPS; prints one JSON line with the median step and the peak resident memory.
"""
import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS, VOCAB, POSITIONS, BATCH, TIME = 768, 12, 12, 50257, 1024, 4, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [part.view(BATCH, TIME, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=2)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(BATCH, TIME, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

    def forward(self, ids, targets):
        x = self.blocks(self.tokens(ids) + self.positions(torch.arange(TIME)))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def main():
    torch.manual_seed(0)
    model = Gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, VOCAB, (BATCH, TIME))
    seconds = []
    for _ in range(int(sys.argv[1])):
        start = time.perf_counter()
        model(ids, ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    later = sorted(seconds[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": later[len(later) // 2], "rss_bytes": peak, "torch": torch.__version__}))


main()
