"""The examples run, and learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


@pytest.mark.parametrize("ranks", [1, 2])
def test_mnist_learns(ranks, tmp_path):
    command = [sys.executable, str(EXAMPLES / "mnist.py"), str(ranks), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    losses = [float(found) for found in re.findall(r"^Epoch \d+, Loss: ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert len(losses) == 2 and losses[1] < losses[0] < 2.4
    assert done.stdout.endswith("Finished Training\n")
