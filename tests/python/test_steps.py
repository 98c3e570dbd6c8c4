"""What may step a module that zeepo has, and what is kept between two steps."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from models import Plain, batch, loss_of, make
from runs import adamw, same_weights
from torch import nn

import zeepo

STREAMED = dict(offload_param="host", prefetch="1KiB")


def test_a_step_before_all_micro_steps_is_an_error_and_keeps_their_gradients():
    def run(steps_early):
        model = make(Plain)
        opt = adamw(model)
        zeepo.init(model, opt, grad_accum=3)
        for number in range(9):
            loss_of(model, *batch(Plain, number)).backward()
            if number % 3 == 2:
                opt.step()
            elif steps_early:
                with pytest.raises(zeepo.Error, match=f"after {number % 3 + 1} of the 3 .*grad_accum=3"):
                    opt.step()
        zeepo.close()
        return model

    assert same_weights(run(True), run(False))


def test_another_optimizer_of_the_parameters_is_an_error():
    model, other = make(Plain), nn.Linear(2, 2)
    opt, late = adamw(model), torch.optim.SGD(model.outward.parameters(), lr=0.1)
    of_pytorch = opt.step
    others = torch.optim.SGD(other.parameters(), lr=0.1)
    zeepo.init(model, opt)
    loss_of(model, *batch(Plain, 0)).backward()
    for step in (late.step, of_pytorch):
        with pytest.raises(zeepo.Error, match="step.*is zeepo's until"):
            step()
    other(torch.ones(1, 2)).sum().backward()
    others.step()
    opt.step()
    zeepo.close()
    late.step()
    zeepo.init(model)  # for inference
    with pytest.raises(zeepo.Error, match="is zeepo's until"):
        late.step()


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
@pytest.mark.parametrize("place", ["forward", "backward"])
def test_close_right_after_a_failure_leaves_the_weights(options, place):
    class Broken(Exception):
        pass

    def fail(*_):
        raise Broken

    model = make(Plain)
    zeepo.init(model, adamw(model), **options)
    block = model.blocks[1]
    hook = block.register_forward_pre_hook(fail) if place == "forward" else block.up.weight.register_hook(fail)
    with pytest.raises(Broken):
        loss_of(model, *batch(Plain, 0)).backward()
    hook.remove()
    zeepo.close()
    assert same_weights(model, make(Plain))
    assert torch.equal(model(batch(Plain, 1)[0]), make(Plain)(batch(Plain, 1)[0]))


class Exponential(nn.Module):
    """The exponential function saves its own result."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).exp()


def test_a_graph_that_nobody_holds_is_gone_at_once():
    model = Exponential()
    zeepo.init(model, adamw(model), **STREAMED)
    gc.disable()
    try:
        out = model(torch.ones(2, 4))
        held = weakref.ref(out)
        del out
        assert held() is None
    finally:
        gc.enable()


def test_what_was_saved_and_then_changed_in_place_is_an_error_as_in_pytorch():
    model = Exponential()
    for with_zeepo in (False, True):
        if with_zeepo:
            zeepo.init(model, adamw(model), **STREAMED)
        out = model(torch.ones(2, 4))
        out.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_each_micro_step_fetches_what_it_reads():
    # In a process of its own: a read of what is not there ends it.
    script = (
        "import torch, zeepo\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])\n"
        "opt = torch.optim.SGD(model.parameters(), lr=1e-4)\n"
        "zeepo.init(model, opt, grad_accum=2, offload_param='host', prefetch='0', debug=True)\n"
        "for _ in range(4):\n"
        "    for _ in range(2): model(torch.ones(2, 64).requires_grad_()).sum().backward()\n"
        "    opt.step()\n"
        "zeepo.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_modules_with_the_optimizers_parameters_are_told_of():
    model = make(Plain)
    around = [nn.ModuleList([model]), nn.ModuleDict({"one": model})]
    with pytest.raises(zeepo.Error, match="there are 2 modules with the optimizer's parameters"):
        zeepo.init(optimizer=adamw(model))
    assert len(around) == 2


def test_optimizers_that_only_cycles_hold_are_none():
    # In a process of its own: other tests have optimizers.
    script = (
        "import gc, torch, zeepo\n"
        "gc.disable()\n"
        "model = torch.nn.Linear(2, 2)\n"
        "old = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "old.itself = old\n"
        "del old\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "zeepo.init()\n"
        "zeepo.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
