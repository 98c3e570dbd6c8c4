"""Loss scales: zeepo's own of a float16 module, and a GradScaler's."""

import json

import pytest
import torch
import torch.nn.functional as F
from models import CheckpointedReentrant, Plain, batch, loss_of, make
from runs import adamw, same_weights
from torch import nn

import zeepo

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")
PLACES = pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])


def half_loss(model, number, factor=1.0):
    x, y = batch(Plain, number)
    return F.cross_entropy(model(x.half()).float(), y) * factor


def train_half(factors, model=None, opt=None, **options):
    """Losses; loss scale and skipped steps after each step; the module."""
    model = model or make(Plain).half()
    opt = opt or adamw(model)
    zeepo.init(model, opt, **options)
    losses, scales = [], []
    for number, factor in enumerate(factors):
        loss = half_loss(model, number, factor)
        loss.backward()
        opt.step()
        opt.zero_grad()
        report = zeepo.report()
        losses.append(loss.item())
        scales.append((report["loss_scale"], report["skipped_steps"]))
    zeepo.close()
    return losses, scales, model


def train_half_by_hand(steps, scale):
    """In PyTorch: float32 weights beside the module, which the optimizer steps."""
    model = make(Plain).half()
    exact = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    opt = torch.optim.AdamW(exact, lr=3e-3)
    losses = []
    for number in range(steps):
        loss = half_loss(model, number)
        (loss * scale).backward()
        for own, parameter in zip(exact, model.parameters(), strict=True):
            own.grad = parameter.grad.float() / scale
            parameter.grad = None
        opt.step()
        with torch.no_grad():
            for own, parameter in zip(exact, model.parameters(), strict=True):
                parameter.copy_(own)
        losses.append(loss.item())
    return losses


def test_float16_follows_pytorch_with_exact_weights_beside_it():
    expected = train_half_by_hand(30, 65536)
    losses, scales, model = train_half(30 * [1.0])
    assert losses == pytest.approx(expected, rel=2e-3)
    assert scales[-1] == (65536, 0)
    for options in (dict(offload_optimizer="host"), STREAMED):
        others, _, other = train_half(30 * [1.0], **options)
        assert others == losses and same_weights(other, model)


def test_small_gradients_do_not_vanish():
    def changes_after(with_zeepo, kind, lr=2.0**24):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(kind)
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(0.25)
        before = [p.detach().clone() for p in model.parameters()]
        opt = torch.optim.SGD(model.parameters(), lr=lr)
        if with_zeepo:
            zeepo.init(model, opt)
        (model(torch.ones(2, 4, dtype=kind)).float().sum() * 2.0**-26).backward()
        opt.step()
        if with_zeepo:
            zeepo.close()
        return [(p - b).float() for p, b in zip(model.parameters(), before, strict=True)]

    assert not any(change.any() for change in changes_after(False, torch.float16, 1024))
    for got, wanted in zip(changes_after(True, torch.float16), changes_after(False, torch.float32), strict=True):
        assert wanted.any() and torch.allclose(got, wanted)


def test_an_overflow_skips_the_step_and_lowers_the_scale(capfd):
    half = dict(initial_scale_power=10, loss_scale_window=3)
    _, scales, model = train_half([1, 1, float("inf"), 1, 1, 1, 1], **half)
    assert scales == [(1024, 0), (1024, 0), (512, 1), (512, 1), (512, 1), (1024, 1), (1024, 1)]
    assert capfd.readouterr().err == "zeepo: step 3 skipped: overflow at loss scale 1024\n"
    assert all(p.isfinite().all() for p in model.parameters())
    _, scales, _ = train_half([1, float("inf"), 1, float("inf")], loss_scale=256)  # fixed
    assert scales == [(256, 0), (256, 1), (256, 1), (256, 2)]
    with pytest.raises(zeepo.Error, match="overflow even with a loss scale of 512"):
        train_half([float("inf"), float("inf")], min_loss_scale=512, **half)


def test_deepspeeds_section_sets_the_scale_and_checkpoints_keep_it(tmp_path):
    config = tmp_path / "ds.json"
    fp16 = dict(enabled=True, initial_scale_power=6, loss_scale_window=2, hysteresis=2)
    config.write_text(json.dumps(dict(fp16=fp16)))
    inf = float("inf")
    _, scales, _ = train_half([1, 1, inf, 1, inf, 1], config=config)
    assert [scale for scale, _ in scales] == [64, 128, 128, 128, 64, 64]
    model = make(Plain).half()
    opt = adamw(model)
    zeepo.init(model, opt, config=config)
    for number, factor in enumerate([1, 1, inf]):
        half_loss(model, number, factor).backward()
        opt.step()
    zeepo.save(tmp_path / "saved")
    zeepo.close()
    zeepo.init(model, opt, config=config, **STREAMED)
    zeepo.load(tmp_path / "saved")
    assert zeepo.report()["loss_scale"] == 128
    half_loss(model, 3, inf).backward()
    opt.step()
    assert zeepo.report()["loss_scale"] == 64  # the second of the two overflows
    zeepo.close()


def test_others_get_their_gradients_without_the_scale():
    torch.manual_seed(4)
    outside = nn.Linear(5, 1)
    seen = []
    for with_zeepo in (False, True):
        model = make(CheckpointedReentrant)
        model = model.half() if with_zeepo else model
        opt = adamw(model)
        if with_zeepo:
            zeepo.init(model, opt, initial_scale_power=8)
        kind = next(model.parameters()).dtype
        x = batch(Plain, 0)[0].to(kind).requires_grad_()
        norms = []
        for _ in range(2):
            outside.zero_grad()
            x.grad = None
            outside(model(x).float()).sum().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())
            seen.append([x.grad.float(), outside.weight.grad.clone()])
            opt.zero_grad()
        seen.append([torch.tensor(norms)])
    for plain, scaled in zip(seen[:3], seen[3:], strict=True):
        for expected, got in zip(plain, scaled, strict=True):
            assert torch.allclose(got, expected, rtol=2e-2, atol=2e-3)
    alone = outside(torch.ones(1, 5)).sum()  # which zeepo's module has no part in
    outside.zero_grad()
    alone.backward()
    assert outside.bias.grad.item() == 1


def test_a_loss_that_was_not_scaled_is_an_error():
    model = make(Plain).half()
    before = torch.autograd.backward
    zeepo.init(model, adamw(model))
    with pytest.raises(zeepo.Error, match="the loss of a float16 module was not scaled: call loss.backward"):
        before(half_loss(model, 0))
    zeepo.close()
    assert torch.autograd.backward is before


@PLACES
def test_a_gradscaler_works_as_with_pytorchs_optimizer(options):
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        if with_zeepo:
            zeepo.init(model, opt, **options)
        seen = []
        for number in range(24):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=number >= 16):
                loss = loss_of(model, *batch(Plain, number))
            scaler.scale(loss * (float("inf") if number in (3, 4) else 1)).backward()
            if number % 2 == 0 and number != 4:
                scaler.unscale_(opt)
                seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.3).item())
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            seen += [loss.item(), scaler.get_scale()]
        if with_zeepo:
            zeepo.close()
        assert opt._step_supports_amp_scaling
        return seen

    assert run(True) == pytest.approx(run(False), rel=1e-3)


def test_what_of_loss_scales_cannot_be_says_so():
    model = make(Plain)
    with pytest.raises(zeepo.Error, match="loss_scale is of a float16 module, and the parameters are torch.float32"):
        zeepo.init(model, adamw(model), loss_scale=64)
    half = make(Plain).half()
    with pytest.raises(zeepo.Error, match="min_loss_scale 8: must be at most the loss scale at the start, 4"):
        zeepo.init(half, adamw(half), min_loss_scale=8, initial_scale_power=2)
    opt = adamw(half)
    zeepo.init(half, opt)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(half_loss(half, 0)).backward()
    with pytest.raises(zeepo.Error, match="scales the loss of a float16 module itself; leave the GradScaler out"):
        scaler.step(opt)
