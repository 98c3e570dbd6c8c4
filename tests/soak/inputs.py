#!/usr/bin/env python3
"""inputs.py --program ZEEPO [--mnist PROGRAM]: files and texts that are spoiled at random.

Whatever a file holds, the program ends by itself with 0, 1 or 2. A failure is one message; nothing is left behind of what
it was to write; and no more memory is taken than a small model needs.
"""
import json
import shutil
import struct
import sys
from pathlib import Path

import mutations
from harness import Case, Failed, Soak, partial_files
from models import DATA, draw_text, goldens, text_model

BUDGET = "device=64MiB,host=64MiB,nvme=64MiB"
MOST_BYTES = 1 << 30  # of memory, for models of a few KiB
PROMPTS = ["hello", "naïve 你好", "", " ", "\n", "<|endoftext|>", "\u001b[31m", "a" * 3000, "\u202e", "0", "-1"]
IDS = ["1,2,3", "1", "", ",", "1,", ",1", "1,,2", "-1", "256", "99999999999999999999", "1 2", "0x1", "1.5", "+1",
       ",".join(["7"] * 400), "1;2"]
ODD_TEXTS_OF_OPTIONS = ["", "-1", "0", "1e999", "nan", "inf", "9223372036854775808", "18446744073709551616", "0x10", "1,2",
                        "host=", "host=2", "device=1TiB", "device=0", "a", "\u00ff", "/dev/null", "=", ",", "1.5GiB"]


def copy_model(case, source):
    target = case.directory / "model"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("golden.*"))
    return target


def spoil_file(case, path):
    random = case.random
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        changed = mutations.spoil_safetensors(random, data)
    elif path.suffix == ".json":
        changed = mutations.spoil_json(random, data.decode()).encode("utf-8", "surrogateescape")
    elif path.suffix == ".jsonl":
        changed = mutations.spoil_lines(random, data.decode()).encode("utf-8", "surrogateescape")
    else:
        changed = mutations.spoil_bytes(random, data)
    path.write_bytes(changed)


def check(case, finished, written):
    """What holds after every run."""
    case.soak.count("runs")
    case.soak.count(f"exit {finished.code}")
    if finished.code != 0:
        if len(finished.messages()) != 1:
            raise Failed(f"{len(finished.messages())} messages instead of one", finished)
        if any(ord(character) < 32 and character not in "\n\t" for character in finished.err):
            raise Failed("a message with control characters", finished)
        if written and written.exists():
            raise Failed(f"failed, and {written.name} is there", finished)
    if left := partial_files(case.directory):
        raise Failed(f"left behind: {', '.join(left)}", finished)
    if finished.peak_bytes > MOST_BYTES:
        raise Failed(f"took {finished.peak_bytes >> 20} MiB of memory", finished)


def train(case, model, data, extra=()):
    output = case.directory / "output"
    arguments = ["train", "--device", "cpu", "--model", model, "--data", data, "--steps", "1", "--seq-len", "8",
                 "--threads", "1", "--memory", BUDGET, "--log", "-", *extra]
    if case.chance(0.3):
        arguments += ["--output", output]
    finished = case.run(arguments)
    if finished.code == 0:
        finished.events()
    check(case, finished, output)


def generate(case, model, extra):
    logits = case.directory / "logits.safetensors"
    arguments = ["generate", "--device", "cpu", "--model", model, "--max-new-tokens", "3", "--threads", "1", "--memory",
                 "device=64MiB", *extra]
    if case.chance(0.3):
        arguments += ["--logits", logits]
    if json_wanted := case.chance(0.5):
        arguments.append("--json")
    finished = case.run(arguments)
    if finished.code == 0 and json_wanted:
        finished.events()
    check(case, finished, logits)


def tokenize(case, model, source, decode):
    output = case.directory / ("back.txt" if decode else "tokens.out")
    finished = case.run(["tokenize", "--model", model, "--input", source, "--output", output, "--json",
                         *(["--decode"] if decode else ["--eos"] if case.chance(0.5) else [])])
    if finished.code == 0:
        finished.events()
    check(case, finished, output)


def draw_model_files(case: Case):
    """config.json, weights, their index and the generation's configuration of a golden."""
    model = copy_model(case, case.one_of(goldens()))
    files = [path for path in sorted(model.iterdir()) if path.suffix in (".json", ".safetensors")]
    spoil_file(case, case.one_of(files + [model / "config.json"] * 2))
    if case.chance(0.6):
        return train(case, model, model / "tokens.bin", ["--from-scratch"] if case.chance(0.2) else [])
    generate(case, model, ["--ids", "1,2,3"])


def draw_tokens(case: Case):
    model = copy_model(case, case.one_of(goldens()))
    spoil_file(case, model / "tokens.bin")
    train(case, model, model / "tokens.bin")


def draw_text_data(case: Case):
    """Text, JSON lines and the tokenizer."""
    model = text_model(case.random, case.directory / "model")
    spoil_file(case, case.one_of([model.data, model.path / "tokenizer.json", model.path / "tokenizer.json"]))
    if case.chance(0.5):
        return train(case, model.path, model.data, ["--from-scratch"])
    tokenize(case, model.path, model.data, decode=False)


def draw_decode(case: Case):
    model = text_model(case.random, case.directory / "model")
    tokens = case.directory / "in.bin"
    tokens.write_bytes(struct.pack("<50H", *(case.random.randrange(700) for _ in range(50))))
    spoil_file(case, case.one_of([tokens, model.path / "tokenizer.json", model.path / "config.json"]))
    tokenize(case, model.path, tokens, decode=True)


def draw_deepspeed(case: Case):
    model = case.one_of(goldens())
    source = case.one_of(sorted((DATA.parent / "fuzz" / "corpus" / "deepspeed_config").iterdir()))
    file = case.directory / "ds.json"
    value = json.loads(source.read_text())
    value["train_batch_size"] = value["train_micro_batch_size_per_gpu"] = 2
    file.write_text(mutations.spoil_json(case.random, json.dumps(value)), "utf-8", "surrogateescape")
    train(case, model, model / "tokens.bin", ["--config", file])


def draw_prompts(case: Case):
    if case.chance(0.5):
        return generate(case, case.one_of(goldens()), ["--ids", case.one_of(IDS)])
    model = text_model(case.random, case.directory / "model")
    # Weights from one step, so that there are some to generate with.
    trained = case.directory / "trained"
    made = case.run(["train", "--device", "cpu", "--model", model.path, "--from-scratch", "--data", model.data, "--steps",
                     "1", "--seq-len", "8", "--threads", "1", "--memory", BUDGET, "--output", trained])
    if made.code != 0:
        raise Failed("a model as drawn does not train", made)
    if case.chance(0.5):
        spoil_file(case, case.one_of(sorted(trained.glob("*.json"))))
    prompt = case.one_of([*PROMPTS, draw_text(case.random, 5)])
    generate(case, trained, ["--prompt", prompt])


def draw_options(case: Case):
    """Odd values of one option or two."""
    model = case.one_of(goldens())
    names = case.soak.option_names
    extra = []
    for name in case.random.sample(names, case.one_of([1, 1, 2])):
        text = case.one_of([*ODD_TEXTS_OF_OPTIONS, *map(str, mutations.ODD_NUMBERS)])
        if name in ("--steps", "--grad-accum") and text.isdigit() and int(text) > 10:
            continue  # would do all of it
        extra += [name, text]
    usual = {"--seq-len": "8", "--steps": "1", "--memory": BUDGET}
    for name, text in usual.items():
        if name not in extra:
            extra += [name, text]
    finished = case.run(["train", "--device", "cpu", "--model", model, "--data", model / "tokens.bin", "--threads", "1",
                         "--log", "-", *extra])
    check(case, finished, None)


def write_idx(path, kind, extents, values):
    path.write_bytes(struct.pack(">BBBB", 0, 0, 8, kind) + struct.pack(f">{kind}I", *extents) + values)


def draw_idx(case: Case):
    """Images and labels for the example."""
    folder = case.directory / "digits"
    folder.mkdir()
    for name, count in (("train", 24), ("t10k", 8)):
        write_idx(folder / f"{name}-images-idx3-ubyte", 3, (count, 28, 28), case.random.randbytes(count * 28 * 28))
        write_idx(folder / f"{name}-labels-idx1-ubyte", 1, (count,), bytes(case.random.randrange(10) for _ in range(count)))
    path = case.one_of(sorted(folder.iterdir()))
    data = path.read_bytes()
    # The header is a few bytes of many.
    head = 16 if "images" in path.name else 8
    changed = (mutations.spoil_bytes(case.random, data[:head]) + data[head:] if case.chance(0.6) else
               mutations.spoil_bytes(case.random, data))
    path.write_bytes(changed)
    if case.chance(0.3):
        shutil.move(path, str(path) + ".gz")
    finished = case.run([folder, "1"], program=case.soak.options.mnist)
    check(case, finished, None)


def add_options(parser):
    parser.add_argument("--mnist", type=lambda text: str(Path(text).resolve()), default=None, help="the example, for IDX")


def main():
    soak = Soak("inputs", __doc__, add_options)
    soak.option_names = ["--seq-len", "--micro-batch", "--grad-accum", "--steps", "--seed", "--lr", "--betas", "--eps",
                         "--momentum", "--weight-decay", "--clip", "--warmup", "--lr-end", "--dropout", "--dtype",
                         "--stage", "--memory", "--offload-param", "--offload-optimizer", "--offload-activations",
                         "--step-below", "--prefetch", "--blocks-per-unit", "--tile-linear", "--simulate-link",
                         "--timeout", "--cache-policy", "--moments", "--optimizer", "--schedule", "--placement"]
    draws = [draw_model_files] * 4 + [draw_text_data] * 2 + [draw_tokens, draw_decode, draw_deepspeed, draw_deepspeed,
                                                           draw_prompts, draw_options]
    if soak.options.mnist:
        draws.append(draw_idx)
    return soak(lambda case: case.one_of(draws)(case))


if __name__ == "__main__":
    sys.exit(main())
