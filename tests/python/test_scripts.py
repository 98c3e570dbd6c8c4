"""What ordinary scripts do around their loop."""

import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from models import Plain, Tied, batch, loss_of, make
from runs import same_weights
from torch import nn
from torch.nn.utils import clip_grad_norm_ as imported_by_name
from torch.nn.utils import clip_grad_value_ as values_by_name

import zeepo

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")
PLACES = pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def step(model, opt, number=0):
    loss_of(model, *batch(type(model), number)).backward()
    opt.step()
    opt.zero_grad()


def test_clipping_that_was_imported_by_name_clips():
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        if with_zeepo:
            zeepo.init(model, opt)
        seen = []
        for number in range(4):
            loss = loss_of(model, *batch(Plain, number))
            loss.backward()
            seen += [loss.item(), imported_by_name(model.parameters(), 0.1).item()]
            opt.step()
            opt.zero_grad()
        if with_zeepo:
            with pytest.raises(zeepo.Error, match="clip_grad_value_: zeepo clips by the norm"):
                values_by_name(model.parameters(), 0.1)
            if hasattr(nn.utils, "clip_grads_with_norm_"):
                with pytest.raises(zeepo.Error, match="clip_grads_with_norm_: zeepo clips by the norm"):
                    nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, torch.tensor(1.0))
            zeepo.close()
        return seen

    assert run(True) == pytest.approx(run(False), rel=1e-5)
    model = make(Plain)
    loss_of(model, *batch(Plain, 0)).backward()
    assert imported_by_name(model.parameters(), 0.1).item() > 0.1
    assert values_by_name(model.parameters(), 1e-3) is None


class _Twice:
    """Hooks of a user's for what autograd saves."""

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), lambda packed: packed[0])
        self.hooks.__enter__()

    def __exit__(self, *error):
        self.hooks.__exit__(*error)
