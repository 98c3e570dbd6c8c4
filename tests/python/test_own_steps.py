"""Parameters that have no gradient in a step: PyTorch leaves them alone, and so does zeepo."""

import pytest
import torch
import torch.nn.functional as F
from models import CLASSES, WIDTH, Plain, WithUnused, batch, loss_of, make
from runs import OPTIMIZERS, same_weights
from torch import nn

import zeepo

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")
PLACES = pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])


class TwoTasks(Plain):
    """One trunk, and a head for each task: a step is of one task."""

    def __init__(self):
        super().__init__()
        self.other = nn.Linear(WIDTH, CLASSES)
        self.scale = nn.Parameter(torch.ones(CLASSES))

    def forward(self, x, task=0):
        features = self.features(x)
        return self.outward(features) if task == 0 else self.other(features) * self.scale


def task_of(number):
    return int(number % 3 > 0 and number > 2)


def train_tasks(model, opt, first, last, losses, **how):
    for number in range(first, last):
        x, y = batch(Plain, number)
        loss = F.cross_entropy(model(x, task_of(number)), y)
        loss.backward()
        opt.step()
        opt.zero_grad(**how)
        losses.append(loss.item())


def close_to(model, plain):
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(model.parameters(), plain.parameters()))


@PLACES
@pytest.mark.parametrize("how", [{}, dict(set_to_none=False)], ids=["none", "zeros"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tasks_that_take_turns_follow_pytorch(optimizer, how, options):
    plain, model = make(TwoTasks), make(TwoTasks)
    expected, losses = [], []
    train_tasks(plain, OPTIMIZERS[optimizer](plain.parameters()), 0, 50, expected, **how)
    opt = OPTIMIZERS[optimizer](model.parameters())
    zeepo.init(model, opt, **options)
    train_tasks(model, opt, 0, 50, losses, **how)
    zeepo.close()
    assert losses == pytest.approx(expected, rel=2e-6)
    assert close_to(model, plain)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_layer_that_no_pass_uses_keeps_its_weights(optimizer):
    model = make(WithUnused)
    opt = OPTIMIZERS[optimizer](model.parameters())
    zeepo.init(model, opt)
    for number in range(3):
        loss_of(model, *batch(Plain, number)).backward()
        opt.step()
    zeepo.close()
    assert same_weights(model.unused, make(WithUnused).unused)
    assert not same_weights(model.outward, make(WithUnused).outward)


def test_what_is_frozen_later_is_left_alone_and_goes_on():
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
        if with_zeepo:
            zeepo.init(model, opt)
        losses = []
        for number in range(12):
            model.blocks[1].requires_grad_(number % 4 < 2)
            loss = loss_of(model, *batch(Plain, number))
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


def test_checkpoints_know_how_often_each_parameter_was_stepped(tmp_path):
    whole, part = make(TwoTasks), make(TwoTasks)
    expected, losses = [], []
    opt = torch.optim.AdamW(whole.parameters(), lr=3e-3)
    zeepo.init(whole, opt)
    train_tasks(whole, opt, 0, 12, expected)
    zeepo.close()
    opt = torch.optim.AdamW(part.parameters(), lr=3e-3)
    zeepo.init(part, opt)
    train_tasks(part, opt, 0, 6, losses)
    zeepo.save(tmp_path)
    zeepo.close()
    rest = make(TwoTasks, seed=2)
    opt = torch.optim.AdamW(rest.parameters(), lr=3e-3)
    zeepo.init(rest, opt, **STREAMED)
    zeepo.load(tmp_path)
    train_tasks(rest, opt, 6, 12, losses)
    zeepo.close()
    assert losses == expected and same_weights(rest, whole)
