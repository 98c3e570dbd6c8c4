"""Checkpoints, exported weights, and modules whose weights come from files."""

import pytest
import torch
from models import Plain, Tied, WithBuffers, batch, loss_of, make
from runs import adamw, same_weights, step
from torch import nn

import zeepo

STREAMED = dict(offload_param="host", prefetch="1KiB")


def test_checkpoints_go_on_where_they_were_saved(tmp_path):
    def run(model, opt, first, last):
        for number in range(first, last):
            step(model, opt, number)

    whole, part, rest = make(Plain), make(Plain), make(Plain, seed=2)
    opt = adamw(whole)
    zeepo.init(whole, opt)
    run(whole, opt, 0, 6)
    zeepo.close()
    opt = adamw(part)
    zeepo.init(part, opt, offload_optimizer="host")
    run(part, opt, 0, 3)
    assert zeepo.save(tmp_path).name == "step-00000003"
    zeepo.close()
    opt = adamw(rest)
    zeepo.init(rest, opt, **STREAMED)
    zeepo.load(tmp_path)
    run(rest, opt, 3, 6)
    zeepo.export(tmp_path / "exported")
    zeepo.close()
    assert same_weights(rest, whole)
    read = make(Plain, seed=3)
    zeepo.load_weights(read, tmp_path / "exported")
    assert same_weights(read, whole)


def test_a_checkpoint_of_another_module_is_refused(tmp_path):
    model = make(Plain)
    zeepo.init(model, adamw(model))
    zeepo.save(tmp_path)
    zeepo.close()
    other = make(Tied)
    zeepo.init(other, adamw(other))
    with pytest.raises(zeepo.Error, match="load: .*the module has"):
        zeepo.load(tmp_path)
    with pytest.raises(zeepo.Error, match="there is no checkpoint"):
        zeepo.load(tmp_path / "none")
    zeepo.close()


def test_modules_made_without_memory_read_their_weights(tmp_path):
    model = make(Tied)
    zeepo.init(model)
    zeepo.export(tmp_path)
    zeepo.close()
    with zeepo.Init():
        empty = Tied()
    assert empty.embed.weight.device.type == "meta"
    with pytest.raises(zeepo.Error, match=r"has no memory: .*zeepo.load_weights.*zeepo.Init\(directory\)"):
        zeepo.init(empty)
    zeepo.load_weights(empty, tmp_path)
    assert empty.head.weight is empty.embed.weight
    assert same_weights(empty, model)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{]")
    with pytest.raises(zeepo.Error, match="safetensors"):
        zeepo.load_weights(Tied(), tmp_path)


class Counting(WithBuffers):
    """Buffers of several dtypes, one of which is computed and in no file."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("narrow", torch.arange(3).bfloat16())
        self.register_buffer("scale", torch.ones(2), persistent=False)


def test_buffers_are_in_checkpoints_and_exports(tmp_path):
    model = make(Counting)
    opt = adamw(model)
    zeepo.init(model, opt)
    for number in range(3):
        step(model, opt, number)
    zeepo.save(tmp_path)
    zeepo.export(tmp_path / "exported")
    zeepo.close()
    assert model.body[1].num_batches_tracked == 3
    other = make(Counting, seed=2)
    zeepo.init(other, adamw(other), **STREAMED)
    other.mask.zero_()
    zeepo.load(tmp_path)
    zeepo.close()
    assert same_weights(other, model)
    with zeepo.Init():
        read = Counting()
    zeepo.load_weights(read, tmp_path / "exported")
    assert same_weights(read, model) and read.scale.tolist() == [1, 1]
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    found = safetensors.load_file(tmp_path / "exported" / "model.safetensors")
    assert found.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name


def test_a_checkpoint_with_other_buffers_is_refused_and_changes_nothing(tmp_path):
    class Normed(nn.Module):
        def __init__(self, width, **more):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.norm = nn.BatchNorm1d(width, affine=False, **more)

    model = Normed(2)
    zeepo.init(model, adamw(model))
    path = zeepo.save(tmp_path)
    zeepo.close()
    for other, said in ((Normed(3), "norm.running_mean"), (Normed(2, track_running_stats=False), "the module has not")):
        zeepo.init(other, adamw(other))
        before = zeepo.report()["weights_hash"]
        with pytest.raises(zeepo.Error, match=said):
            zeepo.load(tmp_path)
        assert zeepo.report()["weights_hash"] == before
        zeepo.close()
    (path / "model" / "buffers.safetensors").write_bytes(b"spoiled")
    zeepo.init(model, adamw(model))
    with pytest.raises(zeepo.Error, match="damaged"):
        zeepo.load(tmp_path)


def of_transformers(name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.utils.logging.disable_progress_bar()
    shape = dict(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    if name == "Llama":
        return transformers.LlamaForCausalLM, transformers.LlamaConfig(**shape)
    if name == "Qwen2":
        config = transformers.Qwen2Config(**shape, num_key_value_heads=1, tie_word_embeddings=True)
        return transformers.Qwen2ForCausalLM, config
    return transformers.BertForMaskedLM, transformers.BertConfig(**shape)


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Bert"])
def test_models_of_transformers_are_made_without_memory_and_read(name, tmp_path):
    kind, config = of_transformers(name)
    torch.manual_seed(0)
    model = kind(config).eval()
    model.save_pretrained(tmp_path)
    with zeepo.Init():
        empty = kind(config).eval()
    assert {p.device.type for p in empty.parameters()} == {"meta"}
    zeepo.load_weights(empty, tmp_path)
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        expected = model(tokens).logits
        zeepo.init(empty, **STREAMED)
        assert torch.equal(empty(tokens).logits, expected)
        zeepo.close()


def test_weights_without_memory_become_views_of_their_files(tmp_path):
    model = make(Plain)
    zeepo.init(model)
    file = zeepo.export(tmp_path)
    zeepo.close()
    with zeepo.Init():
        empty, narrow = Plain(), Plain().bfloat16()
    zeepo.load_weights(empty, tmp_path)
    zeepo.load_weights(narrow, tmp_path)
    mapped = [line.split()[0].split("-") for line in open("/proc/self/maps") if line.rstrip().endswith(str(file))]
    ranges = [(int(begin, 16), int(end, 16)) for begin, end in mapped]
    for parameter in empty.parameters():
        assert any(begin <= parameter.data_ptr() < end for begin, end in ranges)
    assert narrow.inward.weight.dtype == torch.bfloat16
    before = file.read_bytes()
    step(empty, adamw(empty))  # by PyTorch: the file stays as it is
    assert not same_weights(empty, model) and file.read_bytes() == before


def test_parameters_made_without_memory_stay_tied():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            own = nn.Parameter(torch.ones(2, 2))
            self.first, self.second = nn.Module(), nn.Module()
            self.first.weight = own
            self.second.weight = own
            self.second.bias = nn.Parameter(torch.ones(2), requires_grad=False)

    with zeepo.Init(), zeepo.Init():
        model = Shared()
    assert model.first.weight is model.second.weight and model.first.weight.is_meta
    assert not model.second.bias.requires_grad
    assert Shared().first.weight.device.type == "cpu"


def test_fresh_values_are_kept_in_files_until_the_module_is_attached(tmp_path):
    class WithOwn(Tied):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((3,), 2.0))
            self.none = nn.Parameter(torch.empty(0))
            nn.init.orthogonal_(self.blocks[0].up.weight)

    plain = make(WithOwn)
    with zeepo.Init(tmp_path / "new"):
        model = make(WithOwn)
    assert same_weights(model, plain) and model.head.weight is model.embed.weight
    addresses = [line.split()[0].split("-") for line in open("/proc/self/maps") if str(tmp_path / "new") in line]
    ranges = [(int(begin, 16), int(end, 16)) for begin, end in addresses]
    for parameter in model.parameters():
        assert parameter.numel() == 0 or any(begin <= parameter.data_ptr() < end for begin, end in ranges)
    opt = adamw(model)
    zeepo.init(model, opt, **STREAMED)
    assert not [line for line in open("/proc/self/maps") if str(tmp_path / "new") in line]
    assert not list((tmp_path / "new").iterdir())
    loss_of(model, *batch(Tied, 0)).backward()
    opt.step()
    zeepo.close()
