"""`python -m zeepo`: the command line, `zeepo train`, `zeepo generate` and so on."""

import os
import shutil
import sys
from pathlib import Path


def program() -> str:
    """The program of this package; of a checkout that is not installed, the one that it has built."""
    beside = Path(__file__).resolve().parent / "bin" / "zeepo"
    built = os.environ.get("ZEEPO_PROGRAM")
    for path in ([Path(built)] if built else []) + [beside]:
        if path.is_file():
            return str(path)
    found = shutil.which("zeepo")
    if found and Path(found).resolve() != Path(sys.argv[0]).resolve():
        return found
    sys.exit(f"zeepo: the program is not at {beside}; install the package with pip install .")


def main() -> None:
    path = program()
    os.execv(path, ["zeepo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
