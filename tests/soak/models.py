"""Models and data to train: the goldens of the tests, and tiny ones of every family drawn at random."""
import json
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
WIDE_TOKENS_FROM = 65536  # a larger vocabulary has tokens of 32 bits


@dataclass
class Model:
    path: Path
    data: Path
    positions: int
    from_scratch: bool


def goldens():
    """Directories with weights and tokens."""
    return sorted(path.parent for folder in ("golden", "golden-extra") for path in (DATA / folder).glob("*/tokens.bin"))


def golden_model(path):
    config = json.loads((path / "config.json").read_text())
    return Model(path, path / "tokens.bin", config.get("n_positions") or config["max_position_embeddings"], False)


def write_tokens(path, random, vocab, count):
    width = "<H" if vocab <= WIDE_TOKENS_FROM else "<I"
    path.write_bytes(b"".join(struct.pack(width, random.randrange(vocab)) for _ in range(count)))


def gpt2_config(random, vocab, positions, layers):
    heads = random.choice((1, 2, 3, 4))
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocab, "n_positions": positions,
        "n_embd": heads * random.choice((4, 5, 8, 12)), "n_head": heads, "n_layer": layers,
        "n_inner": random.choice((None, 24, 37, 64)),
        "activation_function": random.choice(("gelu_new", "gelu", "relu", "silu")),
        "tie_word_embeddings": random.random() < 0.6,
        "scale_attn_weights": random.random() < 0.8, "scale_attn_by_inverse_layer_idx": random.random() < 0.3,
        "attn_pdrop": random.choice((0.0, 0.1)), "embd_pdrop": random.choice((0.0, 0.1)),
        "resid_pdrop": random.choice((0.0, 0.2)),
    }


def rope(random, positions):
    kind = random.choice(("default", "linear", "llama3"))
    parameters = {"rope_type": kind, "rope_theta": random.choice((1000.0, 10000.0, 500000.0))}
    if kind == "linear":
        parameters["factor"] = 2.0
    if kind == "llama3":
        parameters.update(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=positions // 2)
    return parameters


def llama_config(random, family, vocab, positions, layers):
    names = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    kv_heads = random.choice((1, 2))
    heads = kv_heads * random.choice((1, 2, 3))
    head_dim = random.choice((4, 6, 8, 16))
    config = {
        "architectures": [names[family] + "ForCausalLM"], "model_type": family, "vocab_size": vocab,
        "hidden_size": heads * head_dim if random.random() < 0.7 else random.choice((8, 20, 33, 40)),
        "intermediate_size": random.choice((16, 24, 37, 80)), "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "max_position_embeddings": positions, "tie_word_embeddings": random.random() < 0.4, "hidden_act": "silu",
        "attention_dropout": random.choice((0.0, 0.1)), "rope_parameters": rope(random, positions),
        "rms_norm_eps": random.choice((1e-5, 1e-6)),
    }
    if family in ("llama", "qwen3"):
        config["attention_bias"] = random.random() < 0.3
    if family == "llama":
        config["mlp_bias"] = random.random() < 0.3
    if family == "mistral":
        config["sliding_window"] = random.choice((None, 3, 8, 1000))
    if family in ("qwen2", "qwen3"):
        config["use_sliding_window"] = windowed = random.random() < 0.5
        config["sliding_window"] = random.choice((3, 8)) if windowed else None
        config["max_window_layers"] = random.randrange(layers + 1)
    return config


def scratch_model(random, directory):
    """A tiny model without weights, and tokens for it."""
    directory.mkdir()
    family = random.choice(("gpt2", "llama", "mistral", "qwen2", "qwen3"))
    vocab = random.choice((2, 17, 101, 256, 300)) if random.random() < 0.95 else WIDE_TOKENS_FROM + 1
    positions, layers = random.choice((32, 64, 128)), random.choice((1, 1, 2, 3, 4, 5))
    config = (gpt2_config(random, vocab, positions, layers) if family == "gpt2" else
              llama_config(random, family, vocab, positions, layers))
    config["initializer_range"] = random.choice((0.02, 0.12))
    config["eos_token_id"] = random.choice((None, 0, 1))
    (directory / "config.json").write_text(json.dumps(config))
    data = directory / "tokens.bin"
    write_tokens(data, random, vocab, random.choice((300, 1000, 4321)))
    return Model(directory, data, positions, True)


WORDS = "the cat sat on a mat and 12 dogs ran; naïve 你好 🙂 it's\tdone\n".split(" ")


def draw_text(random, words):
    return " ".join(random.choice(WORDS) for _ in range(words))


def text_model(random, directory):
    """A tiny model from scratch with a tokenizer, to be trained on text or JSON lines."""
    model = scratch_model(random, directory)
    tokenizer = random.choice(sorted((DATA / "golden" / "tokenizers").iterdir()))
    shutil.copy(tokenizer / "tokenizer.json", directory)
    config = json.loads((directory / "config.json").read_text())
    parsed = json.loads((directory / "tokenizer.json").read_text())
    ids = [*parsed["model"]["vocab"].values(), *(token["id"] for token in parsed["added_tokens"])]
    config["vocab_size"] = max(ids) + 1 + random.choice((0, 5))
    (directory / "config.json").write_text(json.dumps(config))
    if random.random() < 0.5:
        model.data = directory / "text.txt"
        model.data.write_text(draw_text(random, 800))
    else:
        model.data = directory / "text.jsonl"
        model.data.write_text("".join(json.dumps({"text": draw_text(random, random.randrange(1, 60))}) + "\n"
                                      for _ in range(40)))
    return model


def draw_model(random, directory):
    kind = random.random()
    if kind < 0.4:
        return golden_model(random.choice(goldens()))
    return text_model(random, directory) if kind < 0.5 else scratch_model(random, directory)
