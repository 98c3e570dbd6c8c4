#!/usr/bin/env python3
"""read_with_tensorboard.py PROGRAM MODEL: trains, resumes, and compares what TensorBoard and the parser of Prometheus read
with the log. Exit code 77 where the Python packages tensorboard or prometheus_client are missing."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    from prometheus_client.parser import text_string_to_metric_families
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
except ImportError as missing:
    print(f"left out: {missing}")
    sys.exit(77)


def numbers(event, prefix=""):
    for key, value in event.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}/")
        elif prefix + key not in ("event", "step"):
            yield prefix + key, value


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main(program, model):
    with tempfile.TemporaryDirectory() as folder:
        def train(*options):
            subprocess.run([program, "train", "--model", model, "--data", f"{model}/tokens.bin", "--seq-len", "16", "--device",
                            "cpu", "--threads", "1", "--memory", "device=64MiB,host=64MiB", "--log", "run.jsonl",
                            "--prometheus", "run.prom", "--tensorboard", "events", "--checkpoint-dir", "saved", *options],
                           cwd=folder, check=True, stderr=subprocess.DEVNULL)
        train("--steps", "9")  # of another run, which the next one replaces
        train("--steps", "4")
        train("--steps", "6", "--resume", "saved/step-00000004")
        steps = {}
        with open(f"{folder}/run.jsonl", encoding="utf-8") as log:
            for line in log:
                event = json.loads(line)
                if event["event"] == "step":
                    steps[event["step"]] = dict(numbers(event))
        read = EventAccumulator(f"{folder}/events", size_guidance={SCALARS: 0}).Reload()
        tags = read.Tags()["scalars"]
        assert set(tags) == set(steps[1]), (tags, steps[1])
        for tag in tags:
            found = {event.step: event.value for event in read.Scalars(tag)}
            assert found == {step: single(values[tag]) for step, values in steps.items()}, (tag, found)
        with open(f"{folder}/run.prom", encoding="utf-8") as text:
            families = {family.name: family for family in text_string_to_metric_families(text.read())}
        assert families["zeepo_loss"].samples[0].value == steps[6]["loss"]
        assert families["zeepo_steps"].type == "counter"
        print(f"{len(tags)} scalars of {len(steps)} steps, {len(families)} metrics")
        assert not [name for name in os.listdir(folder) if "partial" in name]


main(*map(os.path.abspath, sys.argv[1:]))
