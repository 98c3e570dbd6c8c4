#!/usr/bin/env python3
"""Gathers between hosts with a rank each: straight to every other one beside around a ring (docs/communication.md).

    ZEEPO_PROGRAM=build/zeepo bench/gather_route.py [HOSTS] [MB_PER_SECOND...]

The hosts are namespaces of this machine (tests/hosts/hosts.py; needs root), and tc limits what leaves and enters each. Prints what the ranks
measured at the start and chose, and the median step of runs that go either way.
"""
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "hosts"))
import hosts as harness  # noqa: E402
import wire_test as wire  # noqa: E402


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with harness.Hosts(count) as hosts:
        model, names = wire.make_model(hosts.directory), tuple(hosts.hosts)
        for rate in [float(text) for text in sys.argv[2:]] or [4, 40, 0]:
            for name in names:
                hosts.limit(name, f"{rate * 8000:.0f}kbit" if rate else None)
            runs = {way: wire.Run(hosts, model, 6, "--gather-route", way, "--prefetch", "3MiB", names=names, ranks_per_host=1)
                    for way in ("auto", "direct", "ring")}
            chosen = runs["auto"].plan["communication"]["all_gather"]
            seconds = {way: statistics.median(step["seconds"] for step in run.steps[2:]) for way, run in runs.items()}
            print(f"{count} hosts, {f'{rate:g} MB/s' if rate else 'no limit'}: auto chose {chosen['route']} ({chosen['why']}); a step "
                  f"{seconds['direct']:.3f} s straight, {seconds['ring']:.3f} s around a ring", flush=True)


if __name__ == "__main__":
    harness.skip_if_unavailable()
    main()
