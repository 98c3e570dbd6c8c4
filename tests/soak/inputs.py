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


def draw_batch_file(case: Case):
    """Prompts in JSON lines."""
    file = case.directory / "prompts.jsonl"
    lines = [{"ids": [1, 2, 3]}, {"ids": [7], "max_new_tokens": 2}, {"ids": list(range(20)), "max_new_tokens": 0}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    spoil_file(case, file)
    generate(case, case.one_of(goldens()), ["--batch-file", file, "--max-batch", case.one_of(["1", "2", "32"])])


def draw_checkpoint(case: Case):
    """A file of the newest of two checkpoints. What changes no byte that is read gives the undisturbed result."""
    model = case.one_of(goldens())
    saved, newest = case.directory / "saved", case.directory / "saved" / "step-00000002"
    arguments = ["train", "--device", "cpu", "--model", model, "--data", model / "tokens.bin", "--seq-len", "8", "--threads",
                 "1", "--memory", BUDGET, "--checkpoint-dir", saved, "--checkpoint-every", "1", "--log", "-", "--steps"]
    whole, again = case.directory / "whole", case.directory / "again"
    made = [case.run([*arguments, "2"]), case.run(["export", newest, "--output", whole])]
    if any(finished.code != 0 for finished in made):
        raise Failed("a checkpoint is not made", *made)
    shutil.copytree(saved, case.directory / "before")
    resumed = case.run([*arguments, "3", "--resume"])
    shutil.rmtree(saved)
    shutil.move(case.directory / "before", saved)
    file = case.one_of(path for path in sorted(newest.rglob("*")) if path.is_file())
    before = file.read_bytes()
    if case.chance(0.1):
        file.unlink()
    else:
        spoil_file(case, file)
    differs = not file.exists() or file.read_bytes() != before
    kind = case.random.randrange(3)
    if kind == 0:
        finished = case.run(["inspect", saved, *case.one_of([[], ["--json"], ["--tensors"]])])
        check(case, finished, None)
        if finished.code == 0 and differs:
            raise Failed(f"{file.name} is spoiled, and inspect does not say so", finished)
    elif kind == 1:
        finished = case.run(["export", newest, "--output", again])
        check(case, finished, again)
        if finished.code == 0 and files_in(again) != files_in(whole):
            raise Failed(f"{file.name} is spoiled, and the export is another", finished)
    else:
        finished = case.run([*arguments, "3", "--resume"])
        check(case, finished, None)
        if finished.code != 0 or last_event(finished) != last_event(resumed):
            raise Failed(f"{file.name} is spoiled, and the resumed run is not the undisturbed one", finished, resumed)


def files_in(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def last_event(finished):
    """Loss and weights, without what differs from run to run."""
    event = finished.events()[-1]
    return event["event"], event["loss"], event["weights_hash"]


def draw_log(case: Case):
    """The log of a run."""
    model = case.one_of(goldens())
    log, page = case.directory / "run.jsonl", case.directory / "page.html"
    made = case.run(["train", "--device", "cpu", "--model", model, "--data", model / "tokens.bin", "--seq-len", "8",
                     "--threads", "1", "--memory", BUDGET, "--steps", "3", "--log", log])
    if made.code != 0:
        raise Failed("no log is made", made)
    spoil_file(case, log)
    commands = [["report", log], ["report", log, "--html", page], ["compare", log, log, "--json"], ["compare", log, log],
                ["plan", "--explain", log], ["plan", "--explain", log, "--json"]]
    check(case, case.run(case.one_of(commands)), page)


def draw_hardware(case: Case):
    """A machine's description."""
    file = case.directory / "machine.json"
    file.write_text(json.dumps({
        "name": "our nodes", "nodes": 2, "gpus_per_node": 4,
        "gpu": {"memory": "80GiB", "tflops": {"fp32": 110, "16bit": 250, "fp8": 250}, "attention_tflops": 140,
                "memory_gbps": 1750, "kernel_us": 4},
        "host": {"memory": "2TiB", "step_gelements": 0.6}, "link": {"to_device_gbps": 20, "to_host_gbps": 20},
        "network": {"within_node_gbps": 230, "between_nodes_gbps": 22, "collective_us": 30},
        "disk": {"size": "30TB", "read_gbps": 3.0, "write_gbps": 2.0}}))
    spoil_file(case, file)
    shape = ["--layers", "3", "--hidden", "256", "--heads", "4", "--seq-len", "64"]
    finished = case.run(["plan", *shape, "--hardware", file, *case.one_of([[], ["--json"], ["--inference"]])])
    check(case, finished, None)


def draw_chat(case: Case):
    """A chat template, or conversations to fine-tune on."""
    model = text_model(case.random, case.directory / "model")
    template = model.path / "chat_template.jinja"
    template.write_text("{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}"
                        "{% if add_generation_prompt %}<|assistant|>{% endif %}")
    data = case.directory / "chats.jsonl"
    talk = [{"role": "user", "content": draw_text(case.random, 5)}, {"role": "assistant", "content": draw_text(case.random, 5)}]
    data.write_text("".join(json.dumps({"messages": talk}) + "\n" for _ in range(20)))
    spoil_file(case, case.one_of([template, data, data]))
    train(case, model.path, data, ["--from-scratch"])


def draw_codes(case: Case):
    """A file of the cache of quantised weights: it is made again, and the tokens are the same."""
    arguments = ["generate", "--device", "cpu", "--model", case.one_of(goldens()), "--ids", "1,2,3", "--max-new-tokens", "4",
                 "--threads", "1", "--memory", "device=64MiB", "--json", "--weights-dtype", case.one_of(["int8", "int4"]),
                 "--cache-dir", case.directory / "cache"]
    first = case.run(arguments)
    files = sorted((case.directory / "cache").iterdir())
    spoil_file(case, case.one_of(files))
    again = case.run(arguments)
    check(case, again, None)
    if again.code != 0 or first.events()[0]["ids"] != again.events()[0]["ids"]:
        raise Failed("other tokens with a damaged cache", again, first)


def draw_options_of_generate(case: Case):
    """Odd values of one option or two of generate's."""
    extra = ["--ids", "1,2,3"]
    names = ["--max-batch", "--prefill-chunk", "--temperature", "--top-k", "--top-p", "--seed", "--timeout", "--prefetch",
             "--blocks-per-unit", "--speculate", "--simulate-link", "--offload-param", "--offload-kv", "--kv-dtype",
             "--weights-dtype", "--cache-policy", "--placement", "--dtype", "--batch-file", "--logits", "--nvme-path"]
    for name in case.random.sample(names, case.one_of([1, 1, 2])):
        extra += [name, case.one_of([*ODD_TEXTS_OF_OPTIONS, *map(str, mutations.ODD_NUMBERS)])]
    finished = case.run(["generate", "--device", "cpu", "--model", case.one_of(goldens()), "--max-new-tokens", "3", "--threads",
                         "1", "--memory", "device=64MiB", "--json", *extra])
    check(case, finished, None)


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
    draws = [draw_model_files] * 4 + [draw_text_data] * 2 + [
        draw_tokens, draw_decode, draw_deepspeed, draw_deepspeed, draw_prompts, draw_batch_file, draw_options,
        draw_options_of_generate, draw_checkpoint, draw_log, draw_hardware, draw_chat, draw_codes]
    if soak.options.mnist:
        draws.append(draw_idx)
    return soak(lambda case: case.one_of(draws)(case))


if __name__ == "__main__":
    sys.exit(main())
