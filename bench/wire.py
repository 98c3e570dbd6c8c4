#!/usr/bin/env python3
"""Two hosts with two ranks each over a slow link: exact steps beside steps that send less (docs/communication.md).

    ZEEPO_PROGRAM=build/zeepo bench/wire.py [STEPS] [MB_PER_SECOND]

The hosts are namespaces of this machine (tests/hosts/hosts.py; needs root), and tc limits what passes between them: first not at
all, then to a quarter of what the exact step sends in its time, or to the rate that is given. Prints the median step of each, how much faster it is than the
exact one, and its time beside that which its bytes alone would take; of the first and the last also beside the longer of that and
of the same step without a limit, which no overlap can undercut.
"""
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "hosts"))
import hosts as harness  # noqa: E402
import wire_test as wire  # noqa: E402

RUNS = {"exact": (), "int8 weights": ("--gather-dtype", "int8"), "int4 gradients": ("--reduce-dtype", "int4"),
        "copy in the node": ("--node-copy",), "all three": wire.ALL}


AHEAD = ("--prefetch", "3MiB")  # a block of the model


def seconds_of(run):
    return statistics.median(step["seconds"] for step in run.steps[2:])


def bytes_of_a_host(run):
    """What leaves a host in a step: with two hosts alike half of all that crosses."""
    return run.counted() / 2


def main():
    steps = sys.argv[1] if len(sys.argv) > 1 else "8"
    with harness.Hosts(2) as hosts:
        model = wire.make_model(hosts.directory)
        free, free_all = (wire.Run(hosts, model, steps, *options, *AHEAD) for options in ((), wire.ALL))
        unlimited = {"exact": seconds_of(free), "all three": seconds_of(free_all)}
        rate = bytes_of_a_host(free) / seconds_of(free) / 4
        if len(sys.argv) > 2:
            rate = float(sys.argv[2]) * 1e6
        print(f"{free.plan['params']} parameters in bf16, stage 3; exact, no limit: {seconds_of(free):.3f} s a step, "
              f"{bytes_of_a_host(free) / 1e6:.1f} MB from each host; all three {seconds_of(free_all):.3f} s; limit {rate / 1e6:.2f} MB/s",
              flush=True)
        for name in hosts.hosts:
            hosts.limit(name, f"{rate * 8 / 1000:.0f}kbit")
        exact = None
        for name, options in RUNS.items():
            run = wire.Run(hosts, model, steps, *options, *AHEAD)
            seconds, least = seconds_of(run), bytes_of_a_host(run) / rate
            exact = exact or seconds
            bound = max(least, unlimited.get(name, 0))
            print(f"{name:18} {bytes_of_a_host(run) / 1e6:7.2f} MB from each host  {seconds:7.3f} s a step  {exact / seconds:5.2f} times "
                  f"the exact  {seconds / least:5.2f} times its bytes at the limit"
                  + (f"  {seconds / bound:5.2f} times the longer of these and the step alone" if name in unlimited else ""), flush=True)


if __name__ == "__main__":
    harness.skip_if_unavailable()
    main()
