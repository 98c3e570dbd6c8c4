#!/usr/bin/env python3
"""A host that dies or is cut off ends the job on all hosts, with its name; one that is slow does not.

The cases run side by side, each on hosts of its own: most of their time is the heartbeat's patience.
"""
import os
import signal
import sys
import time

import hosts as harness
from hosts import Hosts
from training import Job, arguments, expect, run_cases

AT_MOST = 60  # seconds until a job that hangs is a failure
SILENT = "rank 2 on host node3 has been silent for 10 s"


def start(hosts, *options):
    job = Job(hosts, "node1", hosts.mpirun(hosts.hosts, arguments("--steps", "10000000", "--stage", "2", *options)))
    expect(job.wait_for(lambda: job.steps() >= 3), "no steps", job)
    return job


def expect_end(job, *names):
    """The job ends, with these names in its lines, and nothing of it is left on any host that is on."""
    begin = time.monotonic()
    left = job.wait_until_gone(AT_MOST)
    expect(not left, f"processes are left: {left}", job)
    code = job.wait(10)
    expect(code not in (0, None), f"exit code {code}", job)
    for name in names:
        expect(name in job.err(), f"nobody says: {name}", job)
    return f"ended everywhere after {time.monotonic() - begin:.0f} s"


def killed_host():
    with Hosts(3) as hosts:
        job = start(hosts)
        hosts.kill("node3")
        return expect_end(job, SILENT)


def cut_link():
    with Hosts(3) as hosts:
        job = start(hosts)
        hosts.cut("node3")  # its own ranks and daemon end, too
        return expect_end(job, SILENT)


def stopped_rank():
    with Hosts(3) as hosts:
        job = start(hosts)
        os.kill(hosts.processes("node3", ["zeepo"])[0], signal.SIGSTOP)
        return expect_end(job, SILENT)


def killed_rank():
    with Hosts(3) as hosts:
        job = start(hosts)
        os.kill(hosts.processes("node3", ["zeepo"])[0], signal.SIGKILL)
        return expect_end(job, "node3")


def slow_rank_and_link():
    """A rank that waits most of the time for its own link and host; then a link on which a step takes many beats."""
    with Hosts(3) as hosts:
        job = start(hosts)
        stop = time.monotonic() + 12
        while time.monotonic() < stop:  # stands still for most of the time
            process = hosts.processes("node2", ["zeepo"])
            expect(process, "the slow rank is gone", job)
            os.kill(process[0], signal.SIGSTOP)
            time.sleep(1.8)
            os.kill(process[0], signal.SIGCONT)
            time.sleep(0.2)
        before = job.steps()
        expect(job.wait_for(lambda: job.steps() > before), "no step with a slow rank", job)
        hosts.limit("node3", "100kbit")
        time.sleep(25)
        expect(job.process.poll() is None, "a slow link ended the job", job)
        hosts.limit("node3", None)
        before = job.steps()
        expect(job.wait_for(lambda: job.steps() > before + 3), "no step after the slow link", job)
        os.kill(hosts.processes("node1", ["mpirun"])[0], signal.SIGTERM)
        return expect_end(job)


CASES = [slow_rank_and_link, cut_link, killed_host, stopped_rank, killed_rank]


def main():
    harness.skip_if_unavailable()
    return run_cases(CASES)


if __name__ == "__main__":
    sys.exit(main())
