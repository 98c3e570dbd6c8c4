"""What zeepo trains is what PyTorch trains."""

import json

import pytest
import torch
from models import AWKWARD, Plain, WithBuffers, batch, loss_of, make
from runs import OPTIMIZERS, same_weights, train, train_plain
from torch.utils.checkpoint import checkpoint

import zeepo

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")


@pytest.mark.parametrize("clip", [0, 0.05])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_resident_rank_follows_pytorch_over_fifty_steps(optimizer, clip):
    expected, _ = train_plain(Plain, optimizer, steps=50, clip=clip)
    losses, _ = train(Plain, optimizer, steps=50, clip=clip)
    assert losses == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", AWKWARD, ids=lambda kind: kind.__name__)
def test_awkward_modules_train_as_in_pytorch_wherever_their_states_live(kind, tmp_path):
    expected, plain = train_plain(kind, "adam")
    losses, resident = train(kind, "adam")
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, weight in plain.state_dict().items():
        assert torch.allclose(resident.state_dict()[name].double(), weight.double(), rtol=1e-3, atol=1e-4), name
    places = [
        dict(offload_optimizer="host"),
        dict(offload_optimizer="nvme", nvme_path=tmp_path),
        dict(offload_param="host", prefetch="0"),
        STREAMED,
        dict(offload_param="nvme", offload_optimizer="nvme", nvme_path=tmp_path),
    ]
    for options in places:
        other, model = train(kind, "adam", **options)
        assert other == losses, options
        assert same_weights(model, resident), options


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_buffers_are_pytorchs(options):
    _, plain = train_plain(WithBuffers, "sgd")
    _, model = train(WithBuffers, "sgd", **options)
    for name, expected in plain.named_buffers():
        assert torch.allclose(model.get_buffer(name), expected, rtol=1e-5), name
    assert model.body[1].num_batches_tracked == 5


def test_deepspeeds_file_is_the_same_options(tmp_path, capfd):
    def run(model, **options):
        opt = torch.optim.SGD(model.parameters(), lr=0.05)
        zeepo.init(model, opt, **options)
        for number in range(4):
            (100 * loss_of(model, *batch(Plain, number))).backward()  # a norm that a default would clip
            if number % 2:
                opt.step()
        report = zeepo.report()
        zeepo.close()
        return report["weights_hash"], report["ranks"][0]["peak_bytes"]["host"]

    config = tmp_path / "ds.json"
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    given = {"gradient_accumulation_steps": 2, "zero_optimization": zero}
    config.write_text(json.dumps(given))
    options = dict(stage=2, offload_optimizer="host", grad_accum=2)
    unclipped = run(make(Plain), **options)
    assert run(make(Plain), config=config) == unclipped
    assert capfd.readouterr().err == ""
    config.write_text(
        json.dumps(
            given
            | {
                "gradient_clipping": 0.5,
                "optimizer": {"type": "AdamW", "params": {"lr": 7}},
                "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
            }
        )
    )
    clipped = run(make(Plain), config=config)
    assert clipped == run(make(Plain), clip=0.5, **options) and clipped[0] != unclipped[0]
    notes = capfd.readouterr().err
    assert "ds.json: optimizer: left to PyTorch" in notes and "ds.json: scheduler: left to PyTorch" in notes
    assert run(make(Plain), config=config, clip=0) == unclipped  # what is given wins


def test_parameter_groups_have_rates_and_decay_of_their_own_and_follow_schedulers():
    def run(with_zeepo):
        model = make(Plain)
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups = [dict(params=matrices, weight_decay=0.3, lr=1e-2), dict(params=others, weight_decay=0)]
        opt = torch.optim.AdamW(groups, lr=3e-3)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)
        if with_zeepo:
            zeepo.init(model, opt, offload_optimizer="host")
        losses = []
        for number in range(12):
            loss = loss_of(model, *batch(Plain, number))
            loss.backward()
            opt.step()
            schedule.step()
            opt.zero_grad()
            losses.append(loss.item())
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_several_losses_and_passes_before_a_step_add_up(options):
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if with_zeepo:
            zeepo.init(model, opt, **options)
        losses = []
        for number in range(4):
            features = model.features(batch(Plain, number)[0])
            first = model.outward(features).square().mean()
            second = features.abs().mean()
            if with_zeepo:
                with zeepo.accumulate():
                    first.backward(retain_graph=True)
            else:
                first.backward(retain_graph=True)
            second.backward()
            opt.step()
            opt.zero_grad()
            losses.append((first + second).item())
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_evaluation_between_two_steps_changes_nothing_and_sees_the_new_weights(options):
    plain = make(Plain)
    reference = torch.optim.AdamW(plain.parameters(), lr=3e-3)
    model = make(Plain)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    zeepo.init(model, opt, **options)
    for number in range(4):
        for m, o in ((plain, reference), (model, opt)):
            loss_of(m, *batch(Plain, number)).backward()
            with torch.no_grad():
                loss_of(m, *batch(Plain, 77))  # between a backward pass and its step
            o.step()
            o.zero_grad()
        with torch.no_grad():
            seen = [loss_of(m.eval(), *batch(Plain, 99)).item() for m in (model, plain)]
        plain.train(), model.train()
        assert seen[0] == pytest.approx(seen[1], rel=1e-6)


def test_micro_steps_of_grad_accum_add_up():
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
        if with_zeepo:
            zeepo.init(model, opt, grad_accum=3)
        losses = []
        for number in range(12):
            loss = loss_of(model, *batch(Plain, number)) / 3
            loss.backward()
            losses.append(loss.item())
            if number % 3 == 2:
                opt.step()
                opt.zero_grad()
        if with_zeepo:
            zeepo.close()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-6)


def test_clip_grad_norm_gives_pytorchs_norm_and_clips_the_step():
    def run(with_zeepo):
        model = make(Plain)
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        if with_zeepo:
            zeepo.init(model, opt)
        seen = []
        for number in range(5):
            loss = loss_of(model, *batch(Plain, number))
            loss.backward()
            clip = zeepo.clip_grad_norm_ if with_zeepo and number % 2 else torch.nn.utils.clip_grad_norm_
            seen += [loss.item(), clip(model.parameters(), 0.1).item()]
            opt.step()
            opt.zero_grad()
        if with_zeepo:
            zeepo.close()
        return seen

    assert run(True) == pytest.approx(run(False), rel=1e-5)


@pytest.mark.parametrize("options", [{}, dict(offload_param="host", prefetch="1KiB")], ids=["resident", "streamed"])
@pytest.mark.parametrize("whole", [False, True], ids=["blocks", "whole"])
def test_compiled_modules_train_as_in_pytorch(options, whole):
    def compiled():
        model = make(Plain)
        if whole:
            model.compile(backend="aot_eager")
        else:
            for block in model.blocks:
                block.compile(backend="aot_eager")
        return model

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    expected, _ = train_plain(Plain)
    losses, _ = train(Plain, model=compiled(), **options)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0


def test_bfloat16_keeps_exact_weights_beside_it():
    model = make(Plain).bfloat16()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)  # steps that bf16 alone would round away
    x, y = batch(Plain, 0)
    zeepo.init(model, opt)
    losses = []
    for _ in range(40):
        loss = loss_of(model, x.bfloat16(), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    zeepo.close()
    assert losses[-1] < losses[0]
    assert model.outward.weight.dtype == torch.bfloat16


def test_pytorchs_clipping_of_other_parameters_stays_pytorchs():
    model, other = make(Plain), torch.nn.Linear(3, 1)
    zeepo.init(model, torch.optim.AdamW(model.parameters()))
    other(torch.ones(2, 3)).sum().backward()
    assert torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1).item() == pytest.approx(4.0)
    assert other.bias.grad.abs().item() < 0.1
    with pytest.raises(zeepo.Error, match="all parameters of its module together"):
        torch.nn.utils.clip_grad_norm_(model.inward.parameters(), 1.0)
    with pytest.raises(zeepo.Error, match="norm of 2"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1.0)
    zeepo.close()
    assert torch.nn.utils.clip_grad_norm_.__module__ == "torch.nn.utils.clip_grad"


class Wide(torch.nn.Module):
    """What autograd saves of it is larger than its parameters."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))
        self.reentrant = None  # of torch's checkpointing, where the layers are computed again

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant) if self.reentrant is not None else layer(x)
            x = torch.nn.functional.gelu(x)
        return x


@pytest.mark.parametrize("place", ["host", "nvme"])
def test_offloaded_activations_change_nothing(place, tmp_path):
    def run(reentrant=None, **options):
        torch.manual_seed(3)
        model = Wide()
        model.reentrant = reentrant
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
        zeepo.init(model, opt, **options)
        losses = []
        for number in range(4):
            x = torch.randn(1500, 64, generator=torch.Generator().manual_seed(number))
            x.requires_grad_(bool(reentrant))  # which needs an input with a gradient
            loss = model(x).square().mean()
            if number == 2 and reentrant is None:  # what is kept may be asked for twice
                with zeepo.accumulate():
                    loss.backward(retain_graph=True)
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
            del loss  # with the graph, and what it keeps
        peak = zeepo.report()["ranks"][0]["peak_bytes"]
        zeepo.close()
        return losses, peak

    memory = dict(memory={"nvme": "64MiB"}, nvme_path=tmp_path) if place == "nvme" else {}
    for reentrant in (False, True):  # with torch's checkpointing: the inputs of the layers alone
        expected, _ = run(reentrant)
        losses, peak = run(reentrant, offload_activations=place, **memory)
        assert losses == expected
        assert peak[place]["activations"] > 3 * 1500 * 64 * 4
    expected, without = run()
    for more in ({}, dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")):
        losses, peak = run(offload_activations=place, **memory, **more)
        assert losses == expected
        assert peak[place]["activations"] > 5 * 1500 * 64 * 4 > 0 == without[place]["activations"]


def test_placement_auto_moves_away_what_does_not_fit():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)])
    count = sum(p.numel() for p in model.parameters())
    seen = {}
    for budget in (64 * count, 13 * count, 3 * count):
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        zeepo.init(model, opt, placement="auto", memory={"device": budget, "host": "64MiB"})
        for _ in range(2):
            model(torch.ones(2, 128)).sum().backward()
            opt.step()
            opt.zero_grad()
        peak = zeepo.report()["ranks"][0]["peak_bytes"]
        zeepo.close()
        assert peak["device"]["total"] <= budget
        seen[budget] = (peak["host"]["optimizer"], peak["host"]["params"])
    assert seen[64 * count] == (0, 0)
    assert seen[13 * count][0] > 0
    assert seen[3 * count][1] > 0
    with pytest.raises(zeepo.Error, match="of device memory"):
        zeepo.init(model, torch.optim.AdamW(model.parameters()), placement="auto", memory={"device": "1KiB"})
