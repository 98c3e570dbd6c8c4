"""torchvision's ResNet-18 on drawn pictures, fresh weights, with the optimizer in host memory.

python resnet.py [steps]. On a GPU where there is one.
"""

import sys

import torch
import torchvision
from torch import nn, optim

import zeepo

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def pictures(count=8):
    """Of two kinds: bright above, or bright below."""
    labels = torch.randint(2, (count,))
    images = 0.3 * torch.randn(count, 3, 64, 64)
    for image, label in zip(images, labels.tolist()):
        image[:, 32 * label : 32 * label + 32] += 1
    return images.to(device), labels.to(device)


model = torchvision.models.resnet18(num_classes=2).to(device)
optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
zeepo.init(model, optimizer, zero_offload=True)
for step in range(steps):
    images, labels = pictures()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}, loss {loss.item():.4f}")
zeepo.close()
