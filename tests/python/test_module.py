"""What zeepo does to a module, and what it says where something cannot be."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from models import Borrowing, Plain, Tied, batch, loss_of, make
from runs import adamw, same_weights, step, train_plain
from torch import nn

import zeepo

STREAMED = dict(offload_param="host", prefetch="1KiB")


def test_parameters_keep_identity_and_address():
    model = make(Tied)
    opt = adamw(model)
    before = list(model.parameters())
    zeepo.init(model, opt, **STREAMED)
    addresses = [p.data_ptr() for p in model.parameters()]
    for number in range(3):
        step(model, opt, number)
    assert [p.data_ptr() for p in model.parameters()] == addresses
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert model.head.weight is model.embed.weight
    zeepo.close()


@pytest.mark.parametrize("options", [{}, STREAMED, dict(STREAMED, offload_optimizer="host")])
def test_close_leaves_ordinary_tensors_and_optimizers(options):
    model = make(Plain)
    opt = adamw(model)
    zeepo.init(model, opt, **options)
    step(model, opt)
    zeepo.close()
    _, expected = train_plain(Plain, "adamw", steps=0)
    assert not same_weights(model, expected)
    step(model, opt)  # by PyTorch, from here on
    assert opt.state[model.outward.weight]["step"] == 1
    zeepo.init(model, opt, **options)
    step(model, opt)
    zeepo.close()


def test_report_tells_of_the_states():
    model = make(Plain)
    opt = adamw(model)
    count = sum(p.numel() for p in model.parameters())
    zeepo.init(model, opt, offload_optimizer="host")
    step(model, opt)
    report = zeepo.report()
    assert report["params"] == count
    assert report["world_size"] == 1 == len(report["ranks"])
    assert report["ranks"][0]["peak_bytes"]["host"]["optimizer"] >= 8 * count
    assert len(report["weights_hash"]) > 8
    zeepo.close()


def test_streamed_parameters_take_less_than_the_model():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(16)])
    zeepo.init(model, offload_param="host", prefetch="600KB")
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(2, 256))
    peak = zeepo.report()["ranks"][0]["peak_bytes"]
    bytes_in_all = 4 * sum(p.numel() for p in model.parameters())
    assert peak["host"]["params"] >= bytes_in_all
    assert peak["device"]["working"] < bytes_in_all / 3
    zeepo.close()


@pytest.mark.parametrize("kind", [Plain, Tied, Borrowing])
def test_inference_without_an_optimizer(kind, tmp_path):
    model = make(kind).eval()
    x, _ = batch(kind, 0)
    with torch.no_grad():
        expected = model(x)
        for options in (dict(offload_param="host"), STREAMED, dict(offload_param="nvme", nvme_path=tmp_path)):
            zeepo.init(model, **options)
            for _ in range(3):
                assert torch.equal(model(x), expected), options
            zeepo.close()
        assert torch.equal(model(x), expected)


def test_transformers_generates_with_streamed_weights():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    shape = transformers.GPT2Config(vocab_size=60, n_positions=64, n_embd=32, n_layer=3, n_head=2)
    model = transformers.GPT2LMHeadModel(shape).eval()
    prompt = torch.tensor([[5, 9, 2], [7, 7, 1]])

    def generate(**how):
        torch.manual_seed(1)
        return model.generate(prompt, max_new_tokens=12, pad_token_id=0, **how)

    for how in (dict(do_sample=False), dict(do_sample=True, top_k=8), dict(num_beams=2, do_sample=False)):
        expected = generate(**how)
        zeepo.init(model, **STREAMED)
        assert torch.equal(generate(**how), expected), how
        zeepo.close()


def test_state_dict_and_summon_have_the_full_weights():
    model, plain = make(Plain), make(Plain)
    zeepo.init(model, adamw(model), **STREAMED)
    for name, value in model.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name]), name
    for part, expected in ((model.blocks, plain.blocks), (model.blocks[3].down, plain.blocks[3].down)):
        assert part.state_dict().keys() == expected.state_dict().keys()
        assert same_weights(part, expected)
    with zeepo.summon(model):
        assert torch.equal(model.blocks[0].up.weight, plain.blocks[0].up.weight)
        assert torch.equal(model(batch(Plain, 0)[0]), plain(batch(Plain, 0)[0]))
    with pytest.raises(zeepo.Error, match="summoned weights are for reading"):
        with zeepo.summon(model), torch.no_grad():
            model.outward.bias.zero_()
    zeepo.close()


def test_what_cannot_be_says_so_at_once():
    model = make(Plain)
    for call in (zeepo.close, zeepo.report, zeepo.rank, lambda: zeepo.save("x")):
        with pytest.raises(zeepo.Error, match="zeepo.init"):
            call()
    zeepo.init(model, adamw(model))
    with pytest.raises(zeepo.Error, match="close"):
        zeepo.init(model, adamw(model))
    with pytest.raises(zeepo.Error, match="load_state_dict"):
        model.load_state_dict({})
    with pytest.raises(zeepo.Error, match="load_state_dict"):
        model.blocks[1].load_state_dict(make(Plain).blocks[1].state_dict())
    zeepo.close()
    cases = {
        "optimizer that zeepo does not know": lambda: zeepo.init(model, torch.optim.Adagrad(model.parameters())),
        "nesterov": lambda: zeepo.init(model, torch.optim.SGD(model.parameters(), lr=1, momentum=0.9, nesterov=True)),
        "stage 4": lambda: zeepo.init(model, adamw(model), stage=4),
        "no such option": lambda: zeepo.init(model, adamw(model), stages=1),
        "does not take": lambda: zeepo.init(model, adamw(model), seq_len=5),
        "needs nvme_path": lambda: zeepo.init(model, adamw(model), offload_param="nvme"),
        "the module has not": lambda: zeepo.init(model, adamw(make(Tied))),
        "one dtype": lambda: zeepo.init(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())),
        "float64": lambda: zeepo.init(nn.Linear(2, 2).double()),
        "convert the module before": lambda: zeepo.init(model, adamw(model), dtype="bf16"),
        "not a torch.nn.Module": lambda: zeepo.init([model], adamw(model)),
        "with room for them": lambda: zeepo.init(model, offload_activations="nvme", nvme_path="/tmp"),
        "the module is on cpu": lambda: zeepo.init(model, device="cuda"),
        "must be one of given, auto": lambda: zeepo.init(model, placement="best"),
        "must be at least 1": lambda: zeepo.init(model, adamw(model), num_gpus=0),
        "optimizers in this program": lambda: zeepo.init(),
    }
    held = [adamw(model), adamw(model)]
    for said, call in cases.items():
        with pytest.raises(zeepo.Error, match=said):
            call()
        assert zeepo._open is None, said
    assert len(held) == 2
    assert issubclass(zeepo.Error, RuntimeError)


@pytest.mark.parametrize("options", [{}, STREAMED], ids=["resident", "streamed"])
def test_a_parameter_changed_behind_zeepos_back_is_an_error(options):
    def write(p):
        with torch.no_grad():
            p.mul_(2)

    for change in (write, lambda p: p.detach().zero_(), lambda p: p.data.clamp_(0, 1), lambda p: p.data[0].fill_(3)):
        model = make(Plain)
        opt = adamw(model)
        zeepo.init(model, opt, **options)
        loss_of(model, *batch(Plain, 0)).backward()
        change(model.outward.weight)
        with pytest.raises(zeepo.Error, match="outward.weight was written to between two steps"):
            opt.step()
        zeepo.close()


def test_other_memory_of_a_parameter_is_refused_at_once():
    model = make(Plain)
    opt = adamw(model)
    zeepo.init(model, opt)
    weight = model.outward.weight
    for change in (lambda: setattr(weight, "data", torch.zeros_like(weight)), model.bfloat16, model.double):
        with pytest.raises(zeepo.Error, match="its .data was set, or the module moved or converted"):
            change()
    model.to("cpu").float()  # as it is
    step(model, opt)
    zeepo.close()
    weight.data = torch.zeros_like(weight)
    assert not weight.any() and "data" not in torch.Tensor.__dict__


@pytest.mark.parametrize("options", [{}, STREAMED])
def test_a_copy_of_the_module_is_refused_until_close(options, tmp_path):
    model = make(Plain)
    opt = adamw(model)
    zeepo.init(model, opt, **options)
    ways = [copy.deepcopy, pickle.dumps, lambda m: torch.save(m, tmp_path / "m.pt"), lambda m: copy.deepcopy(m.outward)]
    for make_copy in ways:
        with pytest.raises(zeepo.Error, match=r"state_dict\(\).*zeepo.export"):
            make_copy(model)
    step(model, opt)
    kept = copy.deepcopy(model.state_dict())
    zeepo.close()
    copied = copy.deepcopy(model)
    assert all(torch.equal(weight, kept[name]) for name, weight in copied.state_dict().items())
    step(copied, adamw(copied))


def test_what_is_unfrozen_or_added_later_is_an_error():
    model = make(Plain)
    model.inward.requires_grad_(False)
    opt = adamw(model)
    zeepo.init(model, opt)
    step(model, opt)
    model.inward.requires_grad_(True)
    loss_of(model, *batch(Plain, 1)).backward()
    with pytest.raises(zeepo.Error, match="inward.weight was frozen at zeepo.init"):
        opt.step()
    opt.zero_grad()
    opt.add_param_group(dict(params=[nn.Parameter(torch.ones(3))]))
    with pytest.raises(zeepo.Error, match="other parameters than at zeepo.init"):
        opt.step()
    zeepo.close()


def test_after_an_exception_in_the_loop_training_goes_on():
    class Broken(Exception):
        pass

    expected, _ = train_plain(Plain, "adamw", steps=4)
    model = make(Plain)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    zeepo.init(model, opt, **STREAMED)
    losses = []

    def fail(*_):
        raise Broken

    for number in range(4):
        for place in (model.blocks[2].register_forward_pre_hook, model.blocks[1].up.weight.register_hook):
            hook = place(fail)
            with pytest.raises(Broken):
                loss_of(model, *batch(Plain, 50 + number)).backward()
            hook.remove()
            opt.zero_grad()
        loss = loss_of(model, *batch(Plain, number))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    zeepo.close()
    assert losses == pytest.approx(expected, rel=1e-6)


def test_a_gradient_that_is_not_finite_stops_the_step_and_changes_nothing():
    model = make(Plain)
    opt = adamw(model)
    zeepo.init(model, opt)
    before = zeepo.report()["weights_hash"]
    (loss_of(model, *batch(Plain, 0)) * float("inf")).backward()
    with pytest.raises(zeepo.Error, match="not a number"):
        opt.step()
    assert zeepo.report()["weights_hash"] == before
    zeepo.close()


def test_debug_finds_a_read_that_was_not_fetched():
    model = make(Borrowing)
    opt = adamw(model)
    zeepo.init(model, opt, debug=True, **STREAMED)
    with pytest.raises(zeepo.Error, match="a parameter of embed is read, and was not fetched"):
        model(batch(Borrowing, 0)[0])
    opt.zero_grad()
    zeepo.close()


def test_debug_protects_what_is_absent():
    script = (
        "import torch, zeepo\n"
        "from torch import nn\n"
        "model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])\n"
        "zeepo.init(model, offload_param='host', prefetch='0', debug=True)\n"
        "with torch.no_grad(): model(torch.ones(1, 64))\n"
        "print('read', flush=True)\n"
        "print(model[0].weight[0, 0].item())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "read\n" and done.returncode < 0


def test_each_rank_sees_its_own_gpu(monkeypatch):
    from zeepo import _launch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    for given, taken in (("", "1"), ("5,7", "7"), ("GPU-a,GPU-b", "GPU-b")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert _launch.take_own_gpu() == 2
        assert _launch.os.environ["CUDA_VISIBLE_DEVICES"] == taken
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    _launch.take_own_gpu()
    assert _launch.os.environ["CUDA_VISIBLE_DEVICES"] == "5,7"
    monkeypatch.setattr(_launch, "_gpus", 2)
    with pytest.raises(zeepo.Error, match="this machine has 2"):
        zeepo.init(make(Plain), num_gpus=3)


def test_the_model_of_the_one_optimizer_is_found():
    script = (
        "import torch, zeepo\n"
        "from torch import nn\n"
        "model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "zeepo.init(zero_offload=True)\n"
        "model(torch.ones(3, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
        "print(zeepo.report()['params']); zeepo.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "30\n", done.stderr


def test_what_would_be_lost_says_so(capfd):
    model = make(Plain)
    opt = adamw(model)
    loss_of(model, *batch(Plain, 0)).backward()
    opt.step()
    saved = opt.state_dict()
    zeepo.init(model, opt)
    assert "the optimizer has state of PyTorch's steps" in capfd.readouterr().err
    assert opt.state_dict()["param_groups"] and opt.state_dict()
    assert capfd.readouterr().err.count("optimizer.state_dict() has rates, and no moments") == 1
    with pytest.raises(zeepo.Error, match="the moments are zeepo's"):
        opt.load_state_dict(saved)
    opt.load_state_dict(dict(saved, state={}))
    loss_of(model, *batch(Plain, 1)).backward()
    with pytest.raises(zeepo.Error, match="clips by the norm"):
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
    model.inward.weight.grad = torch.ones_like(model.inward.weight)
    with pytest.raises(zeepo.Error, match="the .grad of inward.weight was set"):
        opt.step()
    model.inward.weight.grad = None
    zeepo.close()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for name, value in (("momentum", 0.9), ("nesterov", True)):
        zeepo.init(model, opt)
        loss_of(model, *batch(Plain, 1)).backward()
        before, opt.param_groups[0][name] = opt.param_groups[0][name], value
        with pytest.raises(zeepo.Error, match=rf"optimizer.step\(\): .*{name}={value}"):
            opt.step()
        opt.param_groups[0][name] = before
        zeepo.close()
    lazy = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(zeepo.Error, match="0.weight has no shape before the module was called"):
        zeepo.init(lazy)


def test_streamed_weights_are_fetched_for_a_penalty_and_refused_in_another_thread():
    def run(options):
        model = make(Plain)
        opt = adamw(model)
        if options is not None:
            zeepo.init(model, opt, **options)
        losses = []
        for number in range(4):
            penalty = sum(p.square().sum() for p in model.parameters())
            loss = loss_of(model, *batch(Plain, number)) + 0.01 * penalty
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        if options is not None:
            zeepo.close()
        return losses

    expected = run(None)
    for options in ({}, STREAMED):
        assert run(options) == pytest.approx(expected, rel=1e-5)
    model = make(Plain)
    zeepo.init(model, adamw(model), **STREAMED)
    with ThreadPoolExecutor(1) as threads, pytest.raises(zeepo.Error, match="in another thread than zeepo.init"):
        threads.submit(model, batch(Plain, 0)[0]).result()
    zeepo.close()
