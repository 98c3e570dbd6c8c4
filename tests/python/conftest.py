import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(autouse=True)
def closed():
    """No test leaves a module behind, whatever has failed."""
    yield
    import zeepo

    if zeepo._open is not None:
        zeepo.close()
