#!/usr/bin/env python3
"""`zeepo train --elastic` over hosts that die, are cut off and return: the weights are those of an undisturbed run."""
import os
import signal
import sys
import tempfile
from pathlib import Path

import hosts as harness
from hosts import Hosts
from training import (Job, OVER_HOSTS, PROGRAM, arguments, events, expect, ranks_on, run_cases, supervisor_on,
                      undisturbed, weights_hash)

ENVIRONMENT = {**OVER_HOSTS, "OMPI_MCA_rmaps_base_oversubscribe": "1"}
AT_MOST = 240  # seconds, of a run
MICRO_BATCHES = 6


class Run:
    """An elastic run that is started on node1 and has no end of its own."""

    def __init__(self, hosts, *where):
        self.hosts, self.where = hosts, where
        self.directory = Path(hosts.directory) / "run"
        self.log = self.directory / "log.jsonl"
        self.directory.mkdir()
        self.begin(1 << 40)

    def begin(self, steps, *more):
        self.job = Job(self.hosts, "node1", arguments(
            "--elastic", *self.where, "--steps", str(steps), "--grad-accum", "2", "--stage", "2", "--simulate-link", "ranks=20MB/s",
            "--checkpoint-dir", self.directory / "checkpoints", "--checkpoint-every", "5", "--log", self.log, *more),
            ENVIRONMENT)

    def lives(self):
        return [event for event in events(self.log) if event["event"] == "elastic"]

    def checkpoint(self):
        return max([event["step"] for event in events(self.log) if event["event"] == "checkpoint"], default=0)

    def wait_for_checkpoint(self, more=1):
        at = self.checkpoint()
        expect(self.job.wait_for(lambda: self.checkpoint() >= at + more, 90), "no checkpoint", self.job)

    def wait_for_life(self, number, host_names):
        expect(self.job.wait_for(lambda: len(self.lives()) >= number, 120), f"no life {number}", self.job)
        life = self.lives()[number - 1]
        expect(life["hosts"] == host_names, f"life {number}: {life}, must be on {host_names}", self.job)
        expect(life["ranks"] * life["grad_accum"] == MICRO_BATCHES, f"{life}", self.job)

    def stop(self):
        os.kill(supervisor_on(self.hosts, "node1"), signal.SIGTERM)
        expect(self.job.wait(60) == 75, f"exit code {self.job.process.poll()}, must be 75", self.job)
        expect(not self.job.wait_until_gone(20), f"processes are left: {self.job.left()}", self.job)

    def finish(self):
        """Stops the run and lets it go on for a few steps: it has the weights of a run that nobody disturbed."""
        self.stop()
        steps = self.checkpoint() + 5
        self.begin(steps, "--resume")
        code = self.job.wait(AT_MOST)
        expect(code == 0, f"exit code {code}", self.job)
        found, wanted = weights_hash(events(self.log)), weights_hash(undisturbed(self.directory, steps, MICRO_BATCHES))
        expect(found == wanted, f"weights {found}, must be {wanted}", self.job)
        expect(not self.job.wait_until_gone(20), f"processes are left: {self.job.left()}", self.job)
        return f"{steps} steps: " + "; ".join(f"{life['why']} (step {life['step']})" for life in self.lives())


def killed_and_back():
    with Hosts(3) as hosts:
        run = Run(hosts, "--hosts", "node1,node2,node3")
        run.wait_for_checkpoint()
        hosts.kill("node3")
        run.wait_for_life(2, ["node1", "node2"])
        run.wait_for_checkpoint()
        hosts.start("node3")
        run.wait_for_life(3, ["node1", "node2", "node3"])
        expect(run.lives()[2]["why"] == "node3 is back" and run.lives()[2]["step"] > 0, f"{run.lives()}", run.job)
        run.wait_for_checkpoint()
        return run.finish()


def cut_and_back():
    with Hosts(3) as hosts:
        run = Run(hosts, "--hosts", "node1,node2,node3")
        run.wait_for_checkpoint()
        hosts.cut("node2")
        run.wait_for_life(2, ["node1", "node3"])
        run.wait_for_checkpoint()
        expect(not hosts.processes("node2", ["zeepo"]), "ranks live on where they were cut off", run.job)
        hosts.join("node2")
        run.wait_for_life(3, ["node1", "node2", "node3"])
        run.wait_for_checkpoint()
        return run.finish()


def one_machine():
    """Without ssh: a rank that is killed."""
    with Hosts(1) as hosts:
        run = Run(hosts, "--ranks-per-host", "3")
        run.wait_for_checkpoint()
        os.kill(ranks_on(hosts, "node1")[0], signal.SIGKILL)
        run.wait_for_life(2, ["localhost"])
        run.wait_for_checkpoint()
        run.stop()
        run.begin(1 << 40)  # what is there needs --resume
        expect(run.job.wait(60) == 2 and "--resume" in run.job.err(), f"exit code {run.job.process.poll()}, must be 2", run.job)
        run.begin(1 << 40, "--resume")
        run.wait_for_checkpoint()
        return run.finish()


def refused():
    """What is no accident ends the supervisor at once."""
    with tempfile.TemporaryDirectory() as directory, Hosts(1) as hosts:
        saving = ["--checkpoint-dir", Path(directory, "checkpoints"), "--steps", "3"]
        for options, code, text in ((["--elastic"], 2, "--checkpoint-dir"),
                                    (["--elastic", "--hosts", "a,a", *saving], 2, "twice"),
                                    (["--elastic", "--hosts", "nowhere", *saving], 1, "none of the hosts answers"),
                                    (["--hosts", "node1"], 2, "--elastic")):
            job = Job(hosts, "node1", arguments(*options), ENVIRONMENT)
            found = job.wait(60)
            expect(found == code and text in job.err(), f"{options}: exit code {found}, must be {code}, with {text}", job)
        job = Job(hosts, "node1", arguments("--elastic", *saving, data=Path(directory, "none.bin")), ENVIRONMENT)
        expect(job.wait(60) == 1 and job.err().count("none.bin") == 1, f"exit code {job.process.poll()}, must be 1", job)
        under = Job(hosts, "node1", hosts.mpirun(["node1"], arguments("--elastic", *saving)))
        expect(under.wait(60) == 2 and "starts the ranks itself" in under.err(), "under mpirun", under)
        return "as it must be"


CASES = [killed_and_back, cut_and_back, one_machine, refused]


def main():
    harness.skip_if_unavailable()
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"ZEEPO_PROGRAM={PROGRAM}: not a program")
    return run_cases(CASES)


if __name__ == "__main__":
    sys.exit(main())
