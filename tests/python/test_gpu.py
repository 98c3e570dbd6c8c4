"""Modules on a GPU: what zeepo trains there is what PyTorch trains there."""

import pytest
import torch
from models import AWKWARD, Plain, Tied, batch, loss_of, make
from runs import same_weights, train, train_plain
from torch import nn

import zeepo

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of CUDA")

STREAMED = dict(offload_param="host", offload_optimizer="host", prefetch="1KiB")


@pytest.mark.parametrize("kind", AWKWARD, ids=lambda kind: kind.__name__)
def test_awkward_modules_train_as_in_pytorch_wherever_their_states_live(kind):
    expected, _ = train_plain(kind, "adam", device="cuda")
    losses, resident = train(kind, "adam", device="cuda")
    assert losses == pytest.approx(expected, rel=1e-5)
    for options in (dict(offload_optimizer="host"), dict(offload_param="host", prefetch="0"), STREAMED):
        other, model = train(kind, "adam", device="cuda", **options)
        assert other == losses, options
        assert same_weights(model, resident), options


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_resident_module_follows_pytorch_over_fifty_steps(optimizer):
    expected, _ = train_plain(Plain, optimizer, steps=50, device="cuda")
    losses, model = train(Plain, optimizer, steps=50, device="cuda")
    assert losses == pytest.approx(expected, rel=1e-5)
    assert all(p.is_cuda for p in model.parameters())


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_compiled_blocks_train_as_eager_ones(options):
    torch._dynamo.reset()
    expected, _ = train_plain(Plain, device="cuda")
    model = make(Plain)
    for block in model.blocks:
        block.compile()
    losses, _ = train(Plain, model=model, device="cuda", **options)
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_work_on_another_stream_is_seen(options):
    losses, resident = train(Plain, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other, model = train(Plain, device="cuda", **options)
    torch.cuda.synchronize()
    assert other == losses
    assert same_weights(model, resident)


def test_weights_larger_than_their_slots_are_streamed_without_an_optimizer():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(12)]).cuda().eval()
    x = torch.randn(64, 2048, device="cuda")
    with torch.no_grad():
        expected = model(x)
        zeepo.init(model, offload_param="host", prefetch="34MB")
        for _ in range(4):
            assert torch.equal(model(x), expected)
        peak = zeepo.report()["ranks"][0]["peak_bytes"]
        zeepo.close()
        assert torch.equal(model(x), expected)
    in_all = 4 * sum(p.numel() for p in model.parameters())
    assert peak["host"]["params"] >= in_all
    assert peak["device"]["working"] < in_all / 2


def test_bfloat16_keeps_its_exact_weights_in_host_memory():
    def run(options):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda().bfloat16()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
        zeepo.init(model, opt, **options)
        x = torch.ones(8, 512, device="cuda", dtype=torch.bfloat16)
        for _ in range(6):
            for _ in range(2):  # backward passes a step
                model(x).float().square().mean().backward()
            opt.step()
            opt.zero_grad()
        report = zeepo.report()
        zeepo.close()
        return report

    resident, offloaded = run({}), run(dict(offload_optimizer="host"))
    assert resident["weights_hash"] == offloaded["weights_hash"]
    assert offloaded["ranks"][0]["peak_bytes"]["host"]["optimizer"] == 10 * resident["params"]


def test_memory_gives_the_optimizers_buffers_their_room():
    model = make(Tied).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with pytest.raises(zeepo.Error, match="of device memory"):
        zeepo.init(model, opt, memory={"device": "1KiB"})
    zeepo.init(model, opt, offload_optimizer="host", memory={"device": "1GiB"})
    assert zeepo.device() == torch.device("cuda:0")
    loss_of(model, *batch(Tied, 0, device="cuda")).backward()
    assert float(zeepo.clip_grad_norm_(model.parameters(), 1.0)) > 0
    opt.step()
    zeepo.close()


@pytest.mark.parametrize("more", [{}, STREAMED], ids=["resident", "streamed"])
def test_offloaded_activations_change_nothing(more):
    def run(**options):
        torch.manual_seed(3)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(6)]).cuda()
        opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
        zeepo.init(model, opt, **options)
        losses = []
        for number in range(4):
            x = torch.randn(2048, 256, generator=torch.Generator().manual_seed(number)).cuda()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        peak = zeepo.report()["ranks"][0]["peak_bytes"]["host"]["activations"]
        zeepo.close()
        return losses, peak

    expected, without = run()
    with pytest.raises(zeepo.Error, match="with room for them"):
        run(offload_activations="host")
    losses, kept = run(offload_activations="host", memory={"host": "256MiB"}, **more)
    assert losses == expected
    assert kept > 10 * 2048 * 256 * 4 and without == 0


def test_placement_auto_keeps_to_the_memory_that_is_given():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    count = sum(p.numel() for p in model.parameters())
    zeepo.init(model, opt, placement="auto", memory={"device": 12 * count, "host": "1GiB"})
    for _ in range(2):
        model(torch.ones(2, 1024, device="cuda")).sum().backward()
        opt.step()
        opt.zero_grad()
    peak = zeepo.report()["ranks"][0]["peak_bytes"]
    zeepo.close()
    assert peak["device"]["total"] <= 12 * count
    assert peak["host"]["optimizer"] > 0
