#!/usr/bin/env python3
"""grid.py --program ZEEPO: random combinations of all options of `zeepo train`.

Each case is a group of runs that docs/numerics.md promises the same bits: a reference on one rank with everything
resident, and variants that differ in ranks, stage, placement, threads, links and reports. Losses, norms, weights_hash and
the saved model are compared. Some cases go on to budgets (budgets.py).
"""
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import budgets
import options as train
from harness import Case, Failed, Soak, partial_files
from models import draw_model

# A run that ends because the numbers have left the range of their dtype is no fault of the program.
DIVERGED = ("not finite", "overflow", "not a number")


class Outcome:
    """What is compared of a run."""

    def __init__(self, finished, output=None):
        self.finished = finished
        self.diverged = finished.code == 1 and any(word in finished.err for word in DIVERGED)
        events = finished.events()
        steps = [event for event in events if event["event"] == "step"]
        self.losses = [event["loss"] for event in steps]
        self.norms = [event["grad_norm"] for event in steps]
        self.plan = next((event for event in events if event["event"] == "plan"), None)
        self.summary = next((event for event in events if event["event"] == "summary"), None)
        self.hash = self.summary and self.summary["weights_hash"]
        weights = output and output / "model.safetensors"
        self.saved = hashlib.sha256(weights.read_bytes()).hexdigest() if weights and weights.exists() else None

    def compare(self, reference, norms=True):
        """Raises Failed where this run has other bits than the reference."""
        runs = (reference.finished, self.finished)
        if self.diverged != reference.diverged:
            raise Failed("one run diverged and the other did not", *runs)
        for name in ("losses", *(["norms"] if norms else []), "hash", "saved"):
            ours, theirs = getattr(self, name), getattr(reference, name)
            if ours != theirs:
                raise Failed(f"other {name}: {ours} instead of {theirs}", *runs)


class Group:
    """Runs of one rule."""

    def __init__(self, case):
        self.case = case
        self.model = draw_model(case.random, case.directory / "model")
        self.rule, self.batches = train.draw_rule(case, self.model)
        self.saves = case.chance(0.3)
        self.output_dtype = case.one_of([None, "fp32", "bf16"])
        # With these the number of ranks is part of what is asked.
        fixed = "--reduce" in self.rule or train.coded(self.rule)
        self.ranks = train.rank_choices(self.rule, self.batches, case.soak.most_ranks)
        if fixed:
            self.ranks = [case.one_of(self.ranks)]
        ranks = self.ranks[0]
        self.reference = self.run(self.options({"--threads": "1"}, ranks), ranks)

    def draw_ranks(self):
        return self.case.one_of(self.ranks)

    def options(self, extra, ranks):
        return {**self.rule, "--grad-accum": str(self.batches // ranks), "--log": "-", **extra}

    def run(self, options, ranks, may_fail=False):
        """The outcome of a run, which may fail where the caller looks at its code."""
        options, output = dict(options), None
        if self.saves:
            output = self.case.new_directory("saved") / "model"
            options["--output"] = output
            if self.output_dtype:
                options["--output-dtype"] = self.output_dtype
        finished = self.case.run(train.arguments(options), ranks)
        self.case.soak.count("runs")
        if left := partial_files(self.case.directory):
            raise Failed(f"left behind: {', '.join(left)}", finished)
        outcome = Outcome(finished, output)
        if finished.code != 0 and not outcome.diverged and not may_fail:
            raise Failed("failed", finished)
        if finished.code == 0:
            self.check_files(finished, options, outcome)
        return outcome

    def check_files(self, finished, options, outcome):
        if self.saves and not outcome.saved:
            raise Failed("saved nothing", finished)
        if "--trace" in options:
            json.loads(Path(options["--trace"]).read_text())

    def variant(self):
        """One run that must have the reference's bits."""
        case, ranks = self.case, self.draw_ranks()
        extra = {**train.draw_places(case, self.rule), **train.draw_pace(case, self.rule), "--stage": budgets.stage_of(self)}
        if case.chance(0.1):
            extra["--trace"] = case.new_directory("trace") / "trace.json"
        if float(self.rule["--clip"]) == 0 and case.chance(0.2):
            extra["--clip"] = "1e30"  # never reached
        if extra["--stage"] == "3" and case.chance(0.3):
            extra["--node-copy"] = ""
        norms = train.coded(self.rule) or self.other_units(extra)
        options = self.options(extra, ranks)
        if case.chance(0.2):
            path = case.new_directory("config") / "ds.json"
            path.write_text(json.dumps(train.draw_file(case, options)))
            options["--config"] = path
        self.run(options, ranks).compare(self.reference, norms)

    def other_units(self, extra):
        """Sometimes other units. They change how the norm is rounded, and nothing else where nothing is clipped."""
        if float(self.rule["--clip"]) != 0 or self.rule["--moments"] != "fp32" or not self.case.chance(0.3):
            return True
        extra["--blocks-per-unit"] = self.case.one_of(["1", "2", "4"])
        extra["--tile-linear"] = self.case.one_of(["1", "2", "5"])
        return False


def draw(case: Case):
    group = Group(case)
    for _ in range(case.one_of([2, 3, 4])):
        group.variant()
    if not group.reference.diverged and case.chance(0.5):
        budgets.exact(group)
    if not group.reference.diverged and case.chance(0.4):
        budgets.chosen(group)
    case.soak.count("groups")


def main():
    soak = Soak("grid", __doc__)
    help_text = subprocess.run([soak.options.program, "train", "--help"], capture_output=True, text=True,
                               check=True).stdout
    if unknown := train.unknown_options(help_text):
        print(f"grid: {', '.join(unknown)}: drawn nowhere; add them to tests/soak/options.py")
        return 1
    return soak(draw)


if __name__ == "__main__":
    sys.exit(main())
