"""A frozen trunk and a head that is trained: the trunk has no gradients and no optimizer state, and lives in host memory.

python frozen.py [steps]. On a GPU where there is one.
"""

import sys

import torch
from torch import nn, optim

import zeepo

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

trunk = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(2)]).requires_grad_(False)
model = nn.Sequential(trunk, nn.Linear(64, 4)).to(device)
optimizer = optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-2)
zeepo.init(model, optimizer, offload_param="host")
before = zeepo.report()["ranks"][0]["peak_bytes"]["device"]["optimizer"]
for step in range(steps):
    inputs = torch.randn(32, 64, device=device)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}, loss {loss.item():.4f}")
print(f"optimizer state: {before} bytes for {sum(p.numel() for p in model.parameters())} parameters")
zeepo.close()
