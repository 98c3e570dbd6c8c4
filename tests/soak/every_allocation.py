#!/usr/bin/env python3
"""every_allocation.py ZEEPO SHIM: `zeepo tokenize` without the first large allocation, the second, and so on.

Each ends with the program's own message, also where a destructor of a library was about to allocate.
"""
import sys
import tempfile
from pathlib import Path

from harness import run
from models import DATA


def main():
    program, shim = (str(Path(path).resolve()) for path in sys.argv[1:])
    model = DATA / "golden" / "tokenizers" / "gpt2-bpe"
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "in.txt")
        text.write_text("It's a text of 12 words.\n" * 50)
        for number in range(1, 1000):
            finished = run(["env", f"LD_PRELOAD={shim}", f"ZEEPO_FAULTS=malloc:{number}:12", f"ZEEPO_FAULT_REPORT={folder}/{number}",
                            program, "tokenize", "--model", model, "--input", text, "--output", f"{folder}/out.bin"], folder)
            if not Path(folder, f"{number}.0.fired").exists():
                print(f"{number - 1} allocations refused, one at a time")
                return 0 if number > 1 and finished.code == 0 else 1
            if finished.code != 1 or "out of host memory" not in finished.err:
                print(f"{finished.shell()}\nended with {finished.code}: {finished.err}")
                return 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
