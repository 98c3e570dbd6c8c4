"""What ordinary scripts do around their loop."""

import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from models import Plain, Tied, batch, loss_of, make
from runs import adamw, same_weights, step
from torch import nn
from torch.nn.utils import clip_grad_norm_ as imported_by_name
from torch.nn.utils import clip_grad_value_ as values_by_name

import zeepo

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")
PLACES = pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])


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


@PLACES
def test_zero_grad_of_the_module_drops_gradients(options):
    model, expected = make(Plain), make(Plain)
    opt, reference = adamw(model), adamw(expected)
    step(expected, reference, 1)
    zeepo.init(model, opt, **options)
    wrapped = nn.ModuleDict({"inner": model})
    for drop in (model.zero_grad, wrapped.zero_grad, partial(model.zero_grad, set_to_none=False)):
        (100 * loss_of(model, *batch(Plain, 0))).backward()
        with pytest.raises(zeepo.Error, match="drops the gradients of its module together"):
            model.outward.zero_grad()
        drop()
    model.zero_grad()
    model.outward.zero_grad()  # there are none
    nn.Linear(2, 2).zero_grad()
    step(model, opt, 1)
    zeepo.close()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


def test_the_optimizer_keeps_its_hooks_and_its_schedulers():
    model = make(Plain)
    opt = adamw(model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.01, total_steps=20)
    called = []
    opt.register_step_pre_hook(lambda *_: called.append("before"))
    opt.register_step_post_hook(lambda *_: called.append("after"))
    by_scheduler = opt.step
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zeepo.init(model, opt)
        later = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
        step(model, opt)
        schedule.step()
        later.step(1.0)
        zeepo.close()
        assert opt.step is by_scheduler and "zero_grad" not in opt.__dict__
        step(model, opt)
        schedule.step()
    assert called == 2 * ["before", "after"]


def test_rates_that_are_tensors_and_closures():
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-3))
        if with_zeepo:
            zeepo.init(model, opt)
        losses = []
        for number in range(6):

            def closure():
                opt.zero_grad()
                loss = loss_of(model, *batch(Plain, number))
                loss.backward()
                return loss

            losses.append(opt.step(closure).item())
            opt.param_groups[0]["lr"].mul_(0.9)
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


@PLACES
def test_gradient_penalties_and_gradients_of_the_input(options):
    def run(with_zeepo):
        model = make(Plain)
        opt = adamw(model)
        if with_zeepo:
            zeepo.init(model, opt, **options)
        losses = []
        for number in range(5):
            x, y = batch(Plain, number)
            x.requires_grad_()
            loss = F.cross_entropy(model(x), y)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + slope.norm()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses += [loss.item(), x.grad.norm().item()]
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-5)


class _Twice:
    """Hooks of a user's for what autograd saves."""

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), lambda packed: packed[0])
        self.hooks.__enter__()

    def __exit__(self, *error):
        self.hooks.__exit__(*error)


@pytest.mark.parametrize("within", [torch.autograd.graph.save_on_cpu, _Twice])
@pytest.mark.parametrize("options", [dict(STREAMED, prefetch="0"), dict(STREAMED, debug=True)], ids=["", "debug"])
def test_weights_are_fetched_also_where_others_have_hooks_for_saved_tensors(within, options):
    def run(with_zeepo):
        model = make(Plain)
        opt = adamw(model)
        if with_zeepo:
            zeepo.init(model, opt, **options)
        losses = []
        for number in range(4):
            with within():
                loss = loss_of(model, *batch(Plain, number))
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        if with_zeepo:
            zeepo.close()
        return losses

    before = torch.autograd.graph.saved_tensors_hooks.__enter__
    assert run(True) == pytest.approx(run(False), rel=1e-6)
    assert torch.autograd.graph.saved_tensors_hooks.__enter__ is before


@pytest.mark.parametrize("options", [{}, dict(STREAMED, grad_accum=2)], ids=["resident", "streamed"])
def test_accelerates_loop(options):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

    def run(with_zeepo):
        model = make(Plain)
        opt = adamw(model)
        schedule = torch.optim.lr_scheduler.LinearLR(opt, 0.5, 1.0, 8)
        loader = torch.utils.data.DataLoader([batch(Plain, number) for number in range(8)], batch_size=None)
        if with_zeepo:
            zeepo.init(model, opt, **options)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        wrapped, optimizer, loader, schedule = accelerator.prepare(model, opt, loader, schedule)
        losses = []
        for x, y in loader:
            with accelerator.accumulate(wrapped):
                loss = F.cross_entropy(wrapped(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(wrapped.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(loss.item())
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


@PLACES
def test_a_module_that_torch_compile_has_wrapped(options, tmp_path):
    torch._dynamo.reset()
    plain = make(Plain)
    reference = adamw(plain)
    model = make(Plain)
    compiled = torch.compile(model, backend="aot_eager")
    opt = adamw(compiled)
    zeepo.init(compiled, opt, **options)
    for number in range(4):
        step(plain, reference, number)
        loss = F.cross_entropy(compiled(batch(Plain, number)[0]), batch(Plain, number)[1])
        loss.backward()
        opt.step()
        compiled.zero_grad()
    with zeepo.summon(compiled):
        assert torch.allclose(model.outward.bias, plain.outward.bias, rtol=1e-4, atol=1e-6)
    assert compiled.state_dict().keys() == {f"_orig_mod.{name}" for name in plain.state_dict()}
    zeepo.export(tmp_path)
    zeepo.close()
    read = make(Plain, seed=2)
    zeepo.load_weights(read, tmp_path)
    assert same_weights(read, model)


def test_tied_weights_are_one_tensor_of_the_state_dict():
    model = make(Tied)
    zeepo.init(model, adamw(model), **STREAMED)
    state = model.state_dict()
    assert state["head.weight"] is state["embed.weight"]
    again = model.state_dict()
    assert again["head.weight"] is not state["head.weight"]
    zeepo.close()
    assert torch.equal(state["head.weight"], model.head.weight)


def test_weights_are_not_read_into_an_attached_module(tmp_path):
    model = make(Plain)
    zeepo.init(model)
    zeepo.export(tmp_path)
    with pytest.raises(zeepo.Error, match="load_weights: the weights are zeepo's until"):
        zeepo.load_weights(model, tmp_path)
    zeepo.load_weights(make(Plain), tmp_path)
    with pytest.raises(zeepo.Error, match="ReLU has no parameters"):
        zeepo.close()
        zeepo.init(nn.ReLU())


def test_a_failure_within_init_leaves_the_module(monkeypatch):
    def fail(*_):
        raise ValueError("told")

    model = make(Plain)
    opt = adamw(model)
    for name in ("RefusedCopies", "Unscaling"):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="told"):
            patch.setattr(sys.modules["zeepo._attached"], name, fail)
            zeepo.init(model, opt)
        assert same_weights(model, make(Plain)) and opt.step.__func__ is torch.optim.AdamW.step
    step(model, opt)
    zeepo.init(model, opt)


def test_weights_that_do_not_fit_are_left_out_at_close(monkeypatch, capfd):
    model = make(Plain)
    zeepo.init(model, adamw(model))
    assert zeepo._open.job.has_host_room(1) and not zeepo._open.job.has_host_room(1 << 60)
    monkeypatch.setattr(type(zeepo._open), "_weights_fit", lambda _: False)
    with pytest.raises(zeepo.Error, match="do not fit in memory"), zeepo.summon(model):
        pass
    zeepo.close()
    assert "close: the full weights do not fit in memory" in capfd.readouterr().err
    assert model.outward.weight.numel() == 0


def test_deepspeeds_options_as_a_dict(capfd):
    model = make(Plain)
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "optimizer": {"type": "Adam"}}
    zeepo.init(model, adamw(model), config=config)
    assert zeepo.report()["ranks"][0]["peak_bytes"]["host"]["optimizer"] > 0
    zeepo.close()
    assert "optimizer: left to PyTorch" in capfd.readouterr().err
    with pytest.raises(zeepo.Error, match="stage"):
        zeepo.init(model, adamw(model), config={"zero_optimization": {"stage": 7}})


def test_a_program_that_is_no_script_is_not_started_again():
    # As a notebook: there is a file among the arguments, which is not the program's.
    script = "import sys, torch, zeepo; sys.argv[0] = zeepo.__file__; zeepo.init(torch.nn.Linear(2, 2), num_gpus=2)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "only a script can be started again" in done.stderr
