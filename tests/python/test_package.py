"""The package as it is installed."""

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import zeepo

FOLDER = Path(zeepo.__file__).parent


def test_python_m_zeepo_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "zeepo", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "zeepo train" in done.stdout, done.stderr


def test_what_is_public_has_hints_and_docstrings():
    assert (FOLDER / "py.typed").exists()
    for name in zeepo.__all__:
        public = getattr(zeepo, name)
        assert public.__doc__ and public.__doc__.strip(), name
        if not inspect.isfunction(public):
            continue
        hints = typing.get_type_hints(inspect.unwrap(public))
        assert set(hints) == {*inspect.signature(public).parameters, "return"}, name


def test_the_engine_needs_no_libtorch():
    engines = list(FOLDER.glob("_engine*.so"))
    assert len(engines) == 1
    libraries = subprocess.run(["ldd", str(engines[0])], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in libraries
    assert "torch" not in libraries and "libc10" not in libraries and "not found" not in libraries


def test_an_older_pytorch_is_refused():
    script = "import torch; torch.__version__ = '2.3.1+cpu'; import zeepo"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ImportError: zeepo needs PyTorch 2.4 or newer, and this is 2.3.1+cpu" in done.stderr
