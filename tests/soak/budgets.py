"""Budgets of memory in the grid: exactly as planned, one byte less, and what --placement auto makes of small ones.

A budget exactly as planned must do. One byte less must be an error that names ways out, unless the run can arrange itself
otherwise, with the same bits. What --placement auto chooses or suggests is replayed, and must work as it is printed.
"""
import re

import options as train
from harness import Failed

TIERS = ("device", "host", "nvme")
ROOMY = {tier: 256 << 20 for tier in TIERS}
# What --placement auto decides, unless it is given.
CHOSEN = ("--offload-optimizer", "--offload-param", "--offload-activations", "--activation-checkpointing", "--prefetch",
          "--cache-policy")
# What auto chooses where no option says it.
OPEN = ("--offload-optimizer", "--offload-param", "--offload-activations", "--prefetch")
# A share that the host steps is refused where the placement leaves it no state.
BESIDE = ("--step-below",)


def text_of(budgets):
    return ",".join(f"{tier}={size}" for tier, size in budgets.items())


def budgets_of(options):
    return {tier: size if isinstance(size, int) else int(size)
            for tier, size in (part.split("=") for part in options["--memory"].split(","))}


def planned(outcome):
    """Bytes that the plan has, by tier; none where there are none."""
    return {tier: outcome.plan[tier]["arena_bytes"] for tier in TIERS if outcome.plan[tier]["arena_bytes"] > 0}


def check_within(outcome, budgets):
    for rank in outcome.summary["ranks"]:
        for tier, budget in budgets.items():
            peak = rank["peak_bytes"].get(tier, {}).get("total", 0)
            if peak > budget:
                raise Failed(f"rank {rank['rank']} held {peak} bytes of {tier}, the budget is {budget}", outcome.finished)


def stage_of(group):
    stages = [0, 1] if "--reduce" in group.rule else [1, 2, 3] if train.coded(group.rule) else [0, 1, 2, 3]
    return str(group.case.one_of(stages))


def exact(group):
    case, ranks = group.case, group.draw_ranks()
    extra = {**train.draw_places(case, group.rule), **train.draw_pace(case, group.rule), "--stage": stage_of(group), "--no-tune": "",
             "--memory": text_of(ROOMY)}
    options = group.options(extra, ranks)
    roomy = group.run(options, ranks)
    roomy.compare(group.reference)
    budgets = planned(roomy)
    options["--memory"] = text_of(budgets)
    fitting = group.run(options, ranks)
    fitting.compare(group.reference)
    check_within(fitting, budgets)
    case.soak.count("exact budgets")
    one_byte_less(group, options, ranks, fitting)


def one_byte_less(group, options, ranks, fitting):
    """Buffers shrink where a step would not fit, on the device those of states and weights that are elsewhere: it may still fit."""
    tier = group.case.one_of(list(planned(fitting)))
    elsewhere = any(options.get(name, "none") != "none" for name in ("--offload-optimizer", "--offload-param"))
    flexible = tier == "host" or elsewhere
    less = {**budgets_of(options), tier: planned(fitting)[tier] - 1}
    outcome = group.run({**options, "--memory": text_of(less)}, ranks, may_fail=True)
    if outcome.finished.code == 0:
        if not flexible:
            raise Failed(f"runs in one byte less of {tier} than planned", fitting.finished, outcome.finished)
        outcome.compare(group.reference)
        check_within(outcome, less)
        return
    message = " ".join(outcome.finished.messages())
    if outcome.finished.code != 1 or f"of {tier} memory" not in message or "--placement auto" not in message and \
            "--memory nvme=" not in message:
        raise Failed(f"a budget of {tier} that is one byte short: the message names no way out", outcome.finished)
    freed = {name: text for name, text in options.items() if name not in CHOSEN + BESIDE}
    freed.update({"--placement": "auto", "--memory": text_of({**ROOMY, tier: less[tier]}),
                  "--nvme-path": str(group.case.new_directory("nvme"))})
    if group.rule.get("--sum-order") == "local":
        freed["--step-below"] = "device"
    choose(group, freed, ranks)


def chosen(group):
    """--placement auto in small budgets, with some of it fixed now and then."""
    case, ranks = group.case, group.draw_ranks()
    resident = planned(group.reference)["device"]
    small = {"device": int(resident * case.random.uniform(0.2, 1.1)), "host": int(resident * case.random.uniform(0.2, 1.5))}
    extra = {"--placement": "auto", "--stage": stage_of(group), "--threads": case.one_of(["1", "2"])}
    if case.chance(0.5):
        extra["--nvme-path"] = str(case.new_directory("nvme"))
        small["nvme"] = int(resident * case.random.uniform(0.5, 4)) + (1 << 20) * case.one_of([0, 0, 8])
    places = train.draw_places(case, group.rule)
    for name in ("--offload-optimizer", "--offload-param", "--offload-activations"):
        if name in places and case.chance(0.2) and ("nvme" not in places[name] or "--nvme-path" in extra):
            extra[name] = places[name]
    if case.chance(0.2):
        extra["--prefetch"] = case.one_of(["0", "1000", "1MiB"])
    if group.rule.get("--sum-order") == "local":
        extra["--step-below"] = "device"
    choose(group, group.options({**extra, "--memory": text_of(small)}, ranks), ranks)


def choose(group, options, ranks):
    outcome = group.run(options, ranks, may_fail=True)
    group.case.soak.count("placements chosen")
    if outcome.finished.code != 0:
        return replay_ways(group, options, ranks, outcome)
    outcome.compare(group.reference)
    check_within(outcome, budgets_of(options))
    found = re.search(r"^placement chosen: (.*)$", outcome.finished.err, re.M)
    if not found:
        raise Failed("--placement auto does not say what it chose", outcome.finished)
    given = {name: text for name, text in options.items() if name not in (*CHOSEN, "--placement")}
    again = group.run({**given, **parse_flags(found[1])}, ranks, may_fail=True)
    if again.finished.code != 0:
        raise Failed("the placement that was chosen, given as options, does not run", outcome.finished, again.finished)
    again.compare(group.reference)


def parse_flags(text):
    words, flags = text.split(), {}
    for i, word in enumerate(words):
        if word.startswith("--"):
            flags[word] = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else ""
    return flags


def ways_in(message):
    """Pairs of changes: one for the device and one for the offload tiers, either of them empty where nothing is missing there."""
    sentences = [re.search(rf" {where}: (.*?)\.(?= In host memory and files:|$)", message)
                 for where in ("For the device", "In host memory and files")]
    device, below = [found[1].split(", or ") if found else [""] for found in sentences]
    return [(one, other) for one in device for other in below]


def apply_way(group, options, way):
    """The options with a way out taken; nothing where the way is no option."""
    changed = dict(options)
    if way.startswith("leave "):
        for name in re.findall(r"--[a-z-]+", way):
            changed.pop(name, None)
        return changed
    if found := re.search(r"--memory (\w+)=(\d+)MiB", way):
        changed["--memory"] = text_of({**budgets_of(options), found[1]: int(found[2]) << 20})
        if way.startswith("--memory"):
            return changed
    if way.startswith("--nvme-path DIR with "):
        changed["--nvme-path"] = str(group.case.new_directory("larger"))
        return changed
    if way.startswith("--"):
        changed.update(parse_flags(way))
        return changed
    return dict(options) if way == "" else None


def replay_ways(group, options, ranks, refused):
    message = refused.finished.messages()[0]
    if "train: a step needs" in message and all(name in options for name in OPEN):
        return  # nothing was left to be chosen
    if "--placement auto: a step does not fit" not in message:
        raise Failed("--placement auto failed, and not for want of memory", refused.finished)
    for pair in ways_in(message):
        changed = options
        for way in pair:
            changed = changed and apply_way(group, changed, way)
        if not changed or changed == options:
            continue
        outcome = group.run(changed, ranks, may_fail=True)
        group.case.soak.count("ways out")
        if outcome.finished.code != 0 and not outcome.diverged:
            raise Failed(f"a way out that does not work: {' and '.join(filter(None, pair))}", refused.finished,
                         outcome.finished)
        if not re.search("--micro-batch|--seq-len|--tile-linear", " ".join(pair)):
            outcome.compare(group.reference)
