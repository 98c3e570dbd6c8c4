"""Random options of `zeepo train`: those that change the result, which runs that are compared share, and the others.

The two kinds are those of the option table (src/zeepo/train/option_table.h). Options are a dict from name to text; a flag
that is given has the text "". An option of the program that is in none of the lists below is a fault of this file.
"""
import json
import pathlib
import re

# What changes bits of losses or weights.
RESULT = ["--model", "--from-scratch", "--data", "--seq-len", "--micro-batch", "--grad-accum", "--steps", "--no-shuffle",
          "--seed", "--optimizer", "--moments", "--lr", "--betas", "--eps", "--momentum", "--weight-decay", "--decay",
          "--clip", "--schedule", "--warmup", "--lr-end", "--dropout", "--dtype", "--batch-invariant", "--sum-order",
          "--reduce", "--blocks-per-unit", "--tile-linear", "--freeze", "--gather-dtype", "--reduce-dtype",
          "--reduce-feedback", "--node-size", "--balance"]
# What changes only time, memory, places and reports.
EXECUTION = ["--threads", "--stage", "--comm", "--timeout", "--simulate-link", "--memory", "--placement",
             "--offload-param", "--offload-optimizer", "--step-below", "--activation-checkpointing",
             "--offload-activations", "--cache-policy", "--nvme-path", "--prefetch", "--no-tune", "--log", "--trace",
             "--output", "--output-dtype", "--output-retry", "--output-fallback", "--config", "--checkpoint-dir",
             "--checkpoint-every", "--checkpoint-keep", "--checkpoint-memory", "--tensorboard", "--csv", "--prometheus",
             "--dashboard", "--eval-data", "--eval-every", "--eval-samples", "--on-nan", "--node-copy",
             "--gather-route"]
# What is for a GPU, or is drawn by another test.
LEFT_OUT = ["--help", "--no-communication", "--device", "--matmul-dtype", "--resume", "--allow-changes", "--elastic",
            "--hosts", "--ranks-per-host", "--stop-grace"]


def unknown_options(help_text):
    """Options of the program that no list above has."""
    named = re.findall(r"^\s+(?:-\w,\s*)?(--[a-z0-9-]+)", help_text, re.M)
    return sorted(set(named) - set(RESULT) - set(EXECUTION) - set(LEFT_OUT))


def arguments(options):
    """As on a command line."""
    words = ["train", "--device", "cpu"]
    for name, text in options.items():
        words += [name, str(text)] if text != "" else [name]
    return words


def steps_in_backward(rule):
    return float(rule.get("--clip", 1)) == 0 and rule["--dtype"] != "fp16"


def draw_optimizer(case):
    rule = {"--optimizer": case.one_of(["adamw", "adamw", "adam", "sgd"]), "--lr": case.one_of(["1e-3", "1e-2", "3e-5"]),
            "--weight-decay": case.one_of(["0", "0.1", "0.01"]), "--decay": case.one_of(["all", "matrices"]),
            "--clip": case.one_of(["1", "0.1", "0", "0", "100"])}
    moments = ["fp32", "fp32", "bf16"] if rule["--optimizer"] == "sgd" else ["fp32", "fp32", "bf16", "8bit"]
    rule["--moments"] = case.one_of(moments)
    if rule["--optimizer"] == "sgd":
        rule["--momentum"] = case.one_of(["0", "0.9"])
    elif case.chance(0.4):
        rule["--betas"] = case.one_of(["0.9,0.999", "0,0.5", "0.5,0"])
        rule["--eps"] = case.one_of(["1e-8", "1e-6"])
    if case.chance(0.4):
        rule["--schedule"] = case.one_of(["constant", "linear", "cosine"])
        rule["--warmup"] = case.one_of(["0", "1", "2", "7"])
        rule["--lr-end"] = case.one_of(["0", "1e-5"])
    return rule


def freeze_patterns(model):
    """Each matches some weights of the model's family, and not all."""
    family = json.loads((pathlib.Path(model.path) / "config.json").read_text())["model_type"]
    if family == "gpt2":
        return ["*.0.*", "*.ln_*", "*.attn.*", "*.c_attn.weight,*.wpe.*", "*.mlp.*,*.wte.*", "*.h.*"]
    return ["*.0.*", "*norm*", "*.self_attn.*", "*.[qk]_proj.*", "*.up_proj.*,*.embed_tokens.*", "*.layers.*"]


def draw_rule(case, model):
    """What the runs of a group share, and how many micro-batches a step has on all ranks."""
    batches = case.one_of([1, 2, 2, 3, 4, 4, 6, 12])
    rule = {"--model": model.path, "--data": model.data, "--steps": case.one_of(["1", "2", "3", "3", "4"]),
            "--seq-len": case.one_of([n for n in (1, 2, 7, 16, 16, 32) if n <= model.positions]),
            "--micro-batch": case.one_of(["1", "1", "2", "3"]), "--seed": str(case.random.randrange(1 << 64)),
            "--dtype": case.one_of(["fp32", "bf16", "fp16"]), **draw_optimizer(case)}
    if model.from_scratch or case.chance(0.2):
        rule["--from-scratch"] = ""
    if case.chance(0.2):
        rule["--no-shuffle"] = ""
    if case.chance(0.5):
        rule["--dropout"] = case.one_of(["0", "0.1", "0.5"])
    if case.chance(0.3):
        rule["--blocks-per-unit"] = case.one_of(["2", "3", "100", "auto"])
    if case.chance(0.3):
        rule["--tile-linear"] = case.one_of(["2", "3", "7"])
    if case.chance(0.25):
        rule["--freeze"] = case.one_of(freeze_patterns(model))
    if case.chance(0.1):
        rule["--batch-invariant"] = ""
    # These keep their bits on the number of ranks that they have, not on any.
    if case.chance(0.08):
        rule["--reduce"] = "last"
    elif case.chance(0.08):
        rule["--sum-order"] = "local"
    elif batches % 2 == 0 and case.chance(0.15):
        draw_codes(case, rule)
    elif batches % 2 == 0 and case.chance(0.08):
        rule["--balance"] = case.one_of(["1,0.5", "1,0.3"])  # rank 0, whose plan is in the log, has most rows
    return rule, batches


def draw_codes(case, rule):
    """Codes between ranks: not at stage 0, and the same bits on one number of ranks and of nodes."""
    rule.update({"--gather-dtype": case.one_of(["same", "int8"]), "--reduce-dtype": case.one_of(["int8", "int4"]), "--stage": "1"})
    if case.chance(0.5):
        rule["--node-size"] = case.one_of(["1", "2"])
    if rule["--dtype"] != "fp16" and case.chance(0.3):
        rule["--reduce-feedback"] = ""


def coded(rule):
    return "--reduce-dtype" in rule


def rank_choices(rule, batches, most):
    if rule.get("--sum-order") == "local":
        return [1]
    if "--balance" in rule:
        return [2]
    size = int(rule.get("--node-size", 2)) if coded(rule) else 1
    return [ranks for ranks in range(size, most + 1) if batches % ranks == 0 and ranks % size == 0]


def draw_shares(case):
    kind = case.random.random()
    if kind < 0.3:
        return "none"
    if kind < 0.5:
        return "host"
    if kind < 0.65:
        return "nvme"
    host = case.one_of([0, 0.1, 0.25, 0.5, 0.9])
    nvme = case.one_of([share for share in (0, 0.1, 0.4, 0.75) if host + share <= 1])
    return case.one_of([f"host={host}", f"nvme={nvme}", f"host={host},nvme={nvme}"])


def in_files(options):
    return any("nvme" in options.get(name, "") for name in
               ("--offload-param", "--offload-optimizer", "--offload-activations"))


def draw_step_below(case, rule, options):
    """Not what the program refuses: a share needs state in host memory that is stepped after the backward pass."""
    sides = ["auto", "host", "device"]
    optimizer = options.get("--offload-optimizer", "none")
    if (re.fullmatch(r"host(=0\.[1-9].*)?", optimizer) and "nvme" not in options.get("--offload-param", "") and
            not steps_in_backward(rule)):
        sides += ["0.5", "0.2"]
    if rule.get("--sum-order") == "local" and optimizer != "none":
        sides = ["device"]
    return case.one_of(sides)


def draw_places(case, rule):
    """Where states live."""
    options = {}
    for name in ("--offload-param", "--offload-optimizer"):
        shares = draw_shares(case)
        if shares != "none" or case.chance(0.1):
            options[name] = shares
    if case.chance(0.4):
        options["--offload-activations"] = case.one_of(["none", "host", "nvme"])
    if case.chance(0.3):
        options["--activation-checkpointing"] = ""
    if case.chance(0.3):
        options["--cache-policy"] = case.one_of(["fixed", "lru"])
    step_below = draw_step_below(case, rule, options)
    if step_below != "auto" or case.chance(0.2):
        options["--step-below"] = step_below
    if in_files(options) or case.chance(0.1):
        folders = [case.new_directory(f"nvme{i}") for i in range(case.one_of([1, 1, 2, 3]))]
        options["--nvme-path"] = ",".join(map(str, folders))
    return options


def draw_pace(case, rule):
    """How it runs: threads, prefetching, links, what is watched and saved."""
    options = {"--threads": case.one_of(["1", "1", "2", "3"])}
    if case.chance(0.5):
        options["--prefetch"] = case.one_of(["0", "1", "1000", "64KiB", "1MiB"])
    if case.chance(0.4):
        options["--no-tune"] = ""
    if case.chance(0.2):
        links = [f"{name}={case.one_of(['5MB/s', '40MB/s', '1GB/s'])}" for name in ("ranks", "host-device")]
        links.append(f"nvme={case.one_of(['40MB/s', '1GB/s'])}")  # files move whole pages, however little is wanted
        options["--simulate-link"] = ",".join(case.random.sample(links, case.one_of([1, 2, 3])))
    if case.chance(0.2):
        options["--timeout"] = "50"
    if case.chance(0.2):
        options["--comm"] = case.one_of(["auto", "mpi"])
    if case.chance(0.2):
        options["--gather-route"] = case.one_of(["auto", "direct", "ring"])
    if case.chance(0.3):
        options["--eval-data"] = rule["--data"]
        options["--eval-every"] = case.one_of(["1", "2", "100"])
        options["--eval-samples"] = case.one_of(["1", "5", "12"])
    if case.chance(0.2):
        options["--on-nan"] = case.one_of(["stop", "skip"])
    if case.chance(0.2):
        options["--checkpoint-dir"] = case.new_directory("checkpoints")
        options["--checkpoint-every"] = case.one_of(["1", "1", "2", "100"])
        options["--checkpoint-keep"] = case.one_of(["1", "3"])
        options["--checkpoint-memory"] = case.one_of(["1", "1MiB", "1GiB"])
    return {**options, **draw_metrics(case)}


def draw_metrics(case):
    """Where its events go."""
    options = {}
    if case.chance(0.2):
        options["--tensorboard"] = case.new_directory("events")
    if case.chance(0.2):
        options["--csv"] = case.new_directory("table") / "run.csv"
    if case.chance(0.2):
        options["--prometheus"] = case.new_directory("prometheus") / "run.prom"
    if case.chance(0.1):
        options["--dashboard"] = "0"
    return options


def draw_file(case, options):
    """Some of the options as DeepSpeed's file, and what only the file can say."""
    zero = {}
    if case.chance(0.5):
        zero["stage"] = int(options.pop("--stage"))
    if case.chance(0.5):
        zero["sub_group_size"] = case.one_of([1, 131072, 262144, 1e9])
    file = {"zero_optimization": zero}
    if case.chance(0.5):
        file["aio"] = {"block_size": case.one_of([4096, 8192, 1048576]), "queue_depth": case.one_of([1, 2, 64])}
    if case.chance(0.5):
        file["gradient_accumulation_steps"] = int(options.pop("--grad-accum"))
    if case.chance(0.5):
        file["gradient_clipping"] = float(options.pop("--clip"))
    if case.chance(0.3):
        file["steps_per_print"] = case.one_of([1, 2, 100])
    return file
