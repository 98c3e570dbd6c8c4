#!/usr/bin/env python3
"""kills.py --program ZEEPO: runs are killed at random moments, above all while a checkpoint is written, and resumed.

A case trains on one rank or three with checkpoints every few steps and is ended by SIGKILL again and again. After each kill
every checkpoint that is there is whole. The run that comes to its end has the weights of a run that nobody disturbed, to the
bit; nothing half written is left behind.
"""
import os
import signal
import subprocess
import sys
import time
import uuid

from harness import MARK, MPI_ENVIRONMENT, Failed, Finished, Patience, Soak, end_processes
from models import DATA

GOLDEN = DATA / "golden"
MICRO_BATCHES = 6  # a step, on any number of ranks


def arguments(case, steps):
    """Options of a run, and those that change from life to life and no bit."""
    model = GOLDEN / case.one_of(["llama-tiny", "gpt2-tiny", "qwen3-tiny"])
    fixed = ["train", "--device", "cpu", "--model", str(model), "--data", str(model / "tokens.bin"), "--seq-len", "8",
             "--threads", "1", "--steps", str(steps), "--dtype", case.one_of(["fp32", "bf16", "fp16"]),
             "--moments", case.one_of(["fp32", "bf16", "8bit"]), "--clip", case.one_of(["0", "1"])]

    def arrangement():
        ranks = case.one_of([1, 3]) if case.soak.most_ranks > 1 else 1
        options = ["--grad-accum", str(MICRO_BATCHES // ranks), "--stage", case.one_of("0123"), "--nvme-path", "."]
        for state in ("param", "optimizer"):
            options += [f"--offload-{state}", case.one_of(["none", "host", "nvme"])]
        return ranks, options
    return fixed, arrangement


def command_of(case, ranks, options):
    if ranks == 1:
        return [case.soak.options.program, *options], {}
    return [*case.soak.launcher, "-n", str(ranks), case.soak.options.program, *options], MPI_ENVIRONMENT


def live(case, command, environment, directory, longest):
    """Runs the command until it ends or a moment that is drawn: a Finished, or nothing where it was killed."""
    mark = uuid.uuid4().hex
    wait, while_saving = case.random.uniform(0, longest), case.chance(0.6)
    with open(case.directory / "out", "wb") as out, open(case.directory / "err", "wb") as err:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=case.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True, env={**os.environ, **environment, MARK: mark})
        killed = timed_out = False
        patience = Patience(case.soak.options.timeout)
        while process.poll() is None:
            now = time.monotonic() - start
            timed_out = patience.is_over()
            if timed_out:
                break
            saving = while_saving and now > wait and any(p.name.endswith(".partial") for p in directory.glob("*"))
            if saving or now > wait + (2 if while_saving else 0):
                time.sleep(case.random.uniform(0, 0.01))
                killed = True
                break
            time.sleep(0.0005)
        end_processes(mark)
        if process.poll() is None:
            process.kill()
        process.wait()
        time.sleep(0.05 if killed else 0)
        end_processes(mark)
    if killed:
        return None
    text = [(case.directory / name).read_text(errors="replace") for name in ("out", "err")]
    return Finished(command, environment, process.returncode, text[0], text[1], time.monotonic() - start, timed_out, 0, 0)


def hash_of(finished):
    for event in finished.events():
        if event["event"] == "summary":
            return event["weights_hash"]
    raise Failed("no summary", finished)


def draw(case):
    steps = case.random.randrange(40, 160)
    fixed, arrangement = arguments(case, steps)
    plain = case.run([*fixed, "--grad-accum", str(MICRO_BATCHES), "--log", "-"])
    directory = case.directory / "checkpoints"
    saving = ["--checkpoint-dir", str(directory), "--checkpoint-every", str(case.random.randrange(1, 8)),
              "--checkpoint-keep", str(case.random.randrange(1, 4)), "--resume", "--log", "-"]
    for life in range(200):
        ranks, options = arrangement()
        command, environment = command_of(case, ranks, [*fixed, *options, *saving])
        last = life >= 12  # then the run may come to its end
        finished = live(case, command, environment, directory, 1e6 if last else 0.3 + plain.seconds * (1 + ranks))
        if finished:
            finished.check_end()
            if finished.code != 0:
                raise Failed(f"exit code {finished.code}", finished)
            break
        case.soak.count(f"kills on {ranks} rank{'s' if ranks > 1 else ''}")
        if any(not path.name.endswith(".partial") for path in directory.glob("step-*")):
            case.run(["inspect", str(directory)])
    if hash_of(finished) != hash_of(plain):
        raise Failed("other weights than the undisturbed run's", finished, plain)
    left = [path.name for path in directory.iterdir() if not path.name.startswith("step-") or ".partial" in path.name]
    if left:
        raise Failed(f"left behind: {left}", finished)
    case.soak.count("runs that came to their end")


if __name__ == "__main__":
    sys.exit(Soak("kills", __doc__)(draw))
