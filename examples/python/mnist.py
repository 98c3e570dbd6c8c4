"""A CNN on MNIST as people write it, with one line more: zeepo.init().

python mnist.py [ranks] [directory with MNIST's IDX files]. Without the files it learns drawn digits.
"""

import gzip
import struct
import sys
from pathlib import Path

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import zeepo

EPOCHS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(32 * 26 * 26, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.relu(self.conv(x)), 1))


def read_idx(path):
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        _, _, dtype, rank = struct.unpack("BBBB", file.read(4))
        if dtype != 8 or rank not in (1, 3):
            sys.exit(f"{path}: not an IDX file of bytes")
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(shape)


def drawn_digits(count):
    """Seven strokes a digit, as on a pocket calculator, moved about and with noise."""
    strokes = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]
    rows = dict(a=(6, 6, 10, 17), g=(13, 13, 10, 17), d=(20, 20, 10, 17))
    columns = dict(f=(6, 13, 10, 10), b=(6, 13, 17, 17), e=(13, 20, 10, 10), c=(13, 20, 17, 17))
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (count,), generator=generator)
    images = 0.1 * torch.rand(count, 1, 28, 28, generator=generator)
    moves = torch.randint(-3, 4, (count, 2), generator=generator)
    for image, label, (down, right) in zip(images, labels.tolist(), moves.tolist()):
        for stroke in strokes[label]:
            top, bottom, left, end = {**rows, **columns}[stroke]
            image[0, top + down : bottom + down + 2, left + right : end + right + 2] = 1
    return images, labels


def load_data(directory):
    for name in ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"):
        path = Path(directory) / name
        if path.exists():
            images = read_idx(path)
            labels = read_idx(path.with_name(name.replace("images-idx3", "labels-idx1")))
            return images[:, None] / 255, labels.long()
    return drawn_digits(2048)


torch.manual_seed(0)
num_gpus = int(sys.argv[1]) if len(sys.argv) > 1 else 1
images, labels = load_data(sys.argv[2] if len(sys.argv) > 2 else "data")
train_loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

zeepo.init(zero_offload=True, num_gpus=num_gpus)

for epoch in range(EPOCHS):
    running_loss = 0.0
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    if zeepo.rank() == 0:
        print(f"Epoch {epoch + 1}, Loss: {running_loss / len(train_loader):.4f}")
if zeepo.rank() == 0:
    print("Finished Training")
zeepo.close()
