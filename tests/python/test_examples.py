"""The examples run, and learn."""

import gzip
import importlib.util
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def run(example, *arguments):
    command = [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")  # with any number of GPUs
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_mnist_learns(ranks, tmp_path):
    said = run("mnist.py", ranks, tmp_path)
    losses = [float(found) for found in re.findall(r"^Epoch \d+, Loss: ([\d.]+)$", said, re.MULTILINE)]
    assert len(losses) == 2 and losses[1] < losses[0] < 2.4
    assert said.endswith("Finished Training\n")


def test_mnist_reads_idx_files(tmp_path):
    # Every image says which digit it is, and only one does: drawn digits could not be learnt as fast.
    images, labels = bytes(256 * [0, *27 * [64], *27 * 28 * [0]]), bytes(256 * [7])
    packed = gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 256, 28, 28) + images)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(packed)
    packed = gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 256) + labels)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(packed)
    said = run("mnist.py", 1, tmp_path)
    losses = [float(found) for found in re.findall(r"^Epoch \d+, Loss: ([\d.]+)$", said, re.MULTILINE)]
    assert len(losses) == 2 and losses[1] < losses[0]
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8)))
    with pytest.raises(AssertionError, match="labels-idx1-ubyte.gz: not an IDX file of bytes"):
        run("mnist.py", 1, tmp_path)


@pytest.mark.parametrize(
    ("example", "steps", "needs"),
    [
        ("resnet.py", 6, ["torchvision"]),
        ("bert.py", 30, ["transformers"]),
        ("trainer.py", 30, ["transformers", "accelerate"]),
        ("frozen.py", 40, []),
    ],
)
def test_examples_learn(example, steps, needs):
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    said = run(example, steps)
    losses = [float(found) for found in re.findall(r"^step \d+, loss ([\d.]+)$", said, re.MULTILINE)]
    assert len(losses) == steps
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3]), losses
    if example == "trainer.py":
        assert "counts [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]" in said
