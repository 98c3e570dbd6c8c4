#!/usr/bin/env python3
"""`srun zeepo train` over two hosts with two ranks each, under a Slurm of the test's own: bits, exit codes, signals, losses.

The cases run side by side, each on hosts of its own: most of their time is the heartbeat's patience and Slurm's.
"""
import os
import re
import signal
import sys
from pathlib import Path

import hosts as harness
import slurm as batch
from hosts import Hosts
from slurm import Slurm
from training import PROGRAM, arguments, events, expect, run_cases, undisturbed, weights_hash

AT_MOST = 240  # seconds until a job that hangs is a failure
MICRO_BATCHES = 4
SILENT = "rank [23] on host node2 has been silent for 10 s"
SRUN = ["srun", "--nodes", "2", "--ntasks", "4", "--mpi=pmix"]


def losses(log):
    return [event["loss"] for event in log if event["event"] == "step"]


def expect_bits(job, found, wanted, what):
    expect(losses(found) == losses(wanted) and losses(found), f"{what}: losses {losses(found)}, must be {losses(wanted)}", job)
    expect(weights_hash(found) == weights_hash(wanted), f"{what}: other weights than those of one rank alone", job)


def ranks_in(log):
    """How many ranks, on how many hosts."""
    plan = next(event for event in log if event["event"] == "plan")
    return len(next(event for event in log if event["event"] == "summary")["ranks"]), plan.get("communication", {"nodes": 1})["nodes"]


def same_bits():
    """One rank alone, mpirun and srun in a batch script; srun by itself."""
    with Hosts(2) as hosts:
        slurm, folder, steps = Slurm(hosts), Path(hosts.directory), "5"
        logs = {name: folder / f"{name}.jsonl" for name in ("alone", "mpirun", "srun", "direct")}

        def words(name, *options):
            return [str(word) for word in arguments("--steps", steps, "--log", logs[name], *options)]
        job = slurm.job([*SRUN, *words("direct", "--stage", "3")])
        expect(job.wait(AT_MOST) == 0, f"exit code {job.process.poll()}", job)
        script = folder / "script"
        script.write_text("\n".join(["#!/bin/sh -e", " ".join(words("alone", "--grad-accum", str(MICRO_BATCHES))),
                                     " ".join(["mpirun", "--bind-to", "none", *words("mpirun", "--stage", "1")]),
                                     " ".join(["srun", *words("srun", "--stage", "2")])]) + "\n")
        job = slurm.job(["sbatch", "--nodes", "2", "--ntasks", "4", "--output", folder / "script.out", script])
        expect(job.wait(AT_MOST) == 0, f"sbatch: exit code {job.process.poll()}", job)
        slurm.wait_until(lambda: weights_hash(events(logs["srun"])) or slurm.failed_jobs(), "the batch script has no end", AT_MOST)
        said = (folder / "script.out").read_text()
        expect(weights_hash(events(logs["srun"])), f"the batch script failed: {said}", job)
        alone = events(logs["alone"])
        expect(ranks_in(alone) == (1, 1), f"what a batch script starts itself is {ranks_in(alone)}", job)
        for name in ("direct", "mpirun", "srun"):
            log = events(logs[name])
            expect(ranks_in(log) == (4, 2), f"{name}: ranks and hosts are {ranks_in(log)}, must be (4, 2)", job)
            expect_bits(job, log, alone, name)
        return f"{steps} steps, as one rank alone"


def exit_codes():
    with Hosts(2) as hosts:
        slurm = Slurm(hosts)
        job = slurm.job([*SRUN, *arguments("--steps", "3", "--lr", "x")])
        expect(job.wait(AT_MOST) == 2, f"a usage error: exit code {job.process.poll()}, must be 2", job)
        expect(job.err().count("--lr x: must be a number") == 1, "one rank alone says what is wrong", job)
        job = slurm.job([*SRUN[:-1], "--mpi=none", *arguments("--steps", "3")])  # never four runs of one rank
        expect(job.wait(AT_MOST) == 1 and not job.steps(), f"without PMIx: exit code {job.process.poll()}, must be 1", job)
        return "as it must be"


def stopped_and_resumed():
    """scancel's SIGTERM: a checkpoint on the way out, from which half of the ranks go on."""
    with Hosts(2) as hosts:
        slurm, folder = Slurm(hosts), Path(hosts.directory)
        checkpoints = folder / "checkpoints"
        job = start(slurm, "--checkpoint-dir", checkpoints)
        told = slurm.run("scancel", "--signal", "TERM", "--user", "root")
        expect(told.returncode == 0, f"scancel: {told.stderr}", job)
        expect(job.wait(AT_MOST) == 75, f"exit code {job.process.poll()}, must be 75", job)
        saved = int(re.search(r"checkpoint of step (\d+)", job.err())[1])
        whole = slurm.run(PROGRAM, "inspect", checkpoints / f"step-{saved:08}")
        expect(whole.returncode == 0, f"zeepo inspect: {whole.stdout}{whole.stderr}", job)
        log, steps = folder / "resumed.jsonl", saved + 5
        job = slurm.job(["srun", "--nodes", "2", "--ntasks", "2", "--mpi=pmix", *arguments(
            "--steps", str(steps), "--grad-accum", str(MICRO_BATCHES // 2), "--stage", "3", "--checkpoint-dir", checkpoints,
            "--resume", "--log", log)])
        expect(job.wait(AT_MOST) == 0, f"exit code {job.process.poll()}", job)
        found, wanted = weights_hash(events(log)), weights_hash(undisturbed(folder, steps, MICRO_BATCHES))
        expect(found == wanted, f"weights {found}, must be {wanted}", job)
        return f"stopped after step {saved}, {steps} steps in all"


def start(slurm, *options):
    """A run without an end of its own, after its first steps."""
    job = slurm.job([*SRUN, *arguments("--steps", "10000000", "--stage", "2", *options)])
    expect(job.wait_for(lambda: job.steps() >= 3), "no steps", job)
    return job


def expect_end(job, text):
    """No rank is left on any host that is on, srun ends with a rank's exit code or SIGKILL's, and somebody says why."""
    left = job.wait_until_gone(AT_MOST)
    expect(not left, f"ranks are left: {left}", job)
    expect(job.wait(AT_MOST) in (1, 128 + signal.SIGKILL), f"exit code {job.process.poll()}, must be 1 or 137", job)
    said = re.search(text, job.err())
    expect(said, f"nobody says: {text}", job)
    return said[0]


def killed_rank():
    with Hosts(2) as hosts:
        job = start(Slurm(hosts))
        process = hosts.processes("node2", ["zeepo"])[0]
        rank = re.search(rb"\0SLURM_PROCID=(\d+)\0", Path(f"/proc/{process}/environ").read_bytes())[1].decode()
        os.kill(process, signal.SIGKILL)
        return expect_end(job, f"node2: task {rank}: Killed")


def killed_host():
    with Hosts(2) as hosts:
        job = start(Slurm(hosts))
        hosts.kill("node2")
        return expect_end(job, SILENT)


def cut_link():
    with Hosts(2) as hosts:
        job = start(Slurm(hosts))
        hosts.cut("node2")  # its own ranks end, too
        return expect_end(job, SILENT)


CASES = [cut_link, killed_host, same_bits, stopped_and_resumed, exit_codes, killed_rank]


def main():
    harness.skip_if_unavailable()
    if reason := batch.unavailable():
        print(f"skipped: {reason}", flush=True)
        return harness.SKIPPED
    return run_cases(CASES)


if __name__ == "__main__":
    sys.exit(main())
