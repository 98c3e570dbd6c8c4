#!/usr/bin/env python3
"""Two hosts with two ranks each: what crosses between them, counted by the ranks and by the network devices."""
import json
import sys
from pathlib import Path

import hosts as harness
from hosts import Hosts
from training import Job, expect, run_cases
from training import PROGRAM

LAYERS, HIDDEN, VOCAB = 4, 256, 512
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
          "intermediate_size": 1024, "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 8,
          "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "initializer_range": 0.02, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0}
ALL = ("--gather-dtype", "int8", "--reduce-dtype", "int4", "--node-copy")
WITHIN = 0.05  # of what the ZeRO++ paper gives


def make_model(directory):
    model = Path(directory) / "wire-model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    tokens = bytearray()
    for i in range(20000):
        tokens += (i * i * 31 % VOCAB).to_bytes(2, "little")
    (model / "tokens.bin").write_bytes(tokens)
    return model


def sent_by_devices(hosts):
    total = 0
    for host in hosts.hosts.values():
        link = json.loads(hosts.in_network(host, "ip", "-s", "-j", "link", "show", "eth0"))[0]
        total += link["stats64"]["tx"]["bytes"]
    return total


class Run:
    """A training run over both hosts: its summary, its plan, and what the devices have sent meanwhile."""

    def __init__(self, hosts, model, steps, *options, names=("node1", "node2"), ranks_per_host=2):
        if "--prefetch" not in options:  # so little that the backward pass gathers again
            options = (*options, "--prefetch", "1KiB")
        before = sent_by_devices(hosts)
        words = [PROGRAM, "train", "--device", "cpu", "--model", model, "--from-scratch", "--data", model / "tokens.bin", "--seq-len",
                 "8", "--threads", "1", "--dtype", "bf16", "--stage", "3", "--seed", "3", "--steps", steps, "--log", "-", *options]
        self.job = Job(hosts, names[0], hosts.mpirun(list(names), words, ranks_per_host))
        expect(self.job.wait(300) == 0, f"ended with {self.job.process.poll()}", self.job)
        self.sent = sent_by_devices(hosts) - before
        events = [json.loads(line) for line in self.job.out().splitlines() if line.startswith("{")]
        self.plan = next(event for event in events if event["event"] == "plan")
        self.summary = next(event for event in events if event["event"] == "summary")
        self.steps = [event for event in events if event["event"] == "step"]
        self.hash = self.summary["weights_hash"]

    def counted(self, kind="between_nodes"):
        return sum(rank["comm_bytes"][kind] for rank in self.summary["ranks"])


def sent_in_a_step(hosts, model, *options):
    """By the devices, without what a run sends at its start and end."""
    short, long = Run(hosts, model, 2, *options), Run(hosts, model, 6, *options)
    return (long.sent - short.sent) / 4, long


def bytes_between_nodes():
    with Hosts(2) as hosts:
        model = make_model(hosts.directory)
        exact_sent, exact = sent_in_a_step(hosts, model)
        sent, run = sent_in_a_step(hosts, model, *ALL)
        bits16 = 2 * run.plan["params"]  # the paper's M
        expect(run.plan["communication"]["nodes"] == 2, f"the plan has {run.plan['communication']}", run.job)
        # Two gathers that cross once; exact sums in rank order need both ranks' gradients of a node.
        for what, bytes_sent, paper, job in (("exact, counted", exact.counted(), 4, exact.job), ("exact, devices", exact_sent, 4, exact.job),
                                             ("all three, counted", run.counted(), 0.75, run.job),
                                             ("all three, devices", sent, 0.75, run.job)):
            expect(abs(bytes_sent / bits16 / paper - 1) < WITHIN, f"{what}: {bytes_sent / bits16:.3f} M, where it is {paper} M", job)
        return f"exact {exact_sent / bits16:.3f} M, all three {sent / bits16:.3f} M by the devices, {run.counted() / bits16:.3f} M counted"


def bits_are_those_of_one_host():
    with Hosts(2) as hosts:
        model = make_model(hosts.directory)
        on_one = Run(hosts, model, 3, names=("node1",), ranks_per_host=4)
        on_two = Run(hosts, model, 3, "--node-copy")
        expect(on_two.hash == on_one.hash, "exact runs on one host and on two have other bits", on_two.job)
        first, again = Run(hosts, model, 3, *ALL), Run(hosts, model, 3, *ALL, "--prefetch", "0")
        expect(first.hash == again.hash, "coded runs have other bits", again.job)
        expect(first.hash != on_one.hash, "coded runs have the exact bits", first.job)
        return "exact runs as on one host, coded runs as before"


def hosts_with_unlike_numbers_of_ranks():
    names = ("node1", "node1", "node2")
    with Hosts(2) as hosts:
        model = make_model(hosts.directory)
        on_one = Run(hosts, model, 3, names=("node1",), ranks_per_host=3)
        exact, copied = (Run(hosts, model, 3, *options, names=names, ranks_per_host=1) for options in ((), ("--node-copy",)))
        for run in exact, copied:
            expect(run.plan["communication"]["nodes"] == 2, f"the plan has {run.plan['communication']}", run.job)
            expect(run.hash == on_one.hash, "exact runs on one host and on two have other bits", run.job)
        expect(copied.counted() < exact.counted(), f"{copied.counted()} and {exact.counted()} bytes between nodes", copied.job)
        coded, again = (Run(hosts, model, 3, *options, names=names, ranks_per_host=1) for options in (ALL, ALL[:-1]))
        expect(coded.hash == again.hash != on_one.hash, "coded runs with and without copies have other bits", again.job)
        return "the bits of one host; coded runs as before"


def a_ring_has_the_bits_and_bytes_of_the_straight_way():
    names = ("node1", "node2", "node3")
    with Hosts(3) as hosts:
        model = make_model(hosts.directory)
        direct, ring, auto = (Run(hosts, model, 2, "--gather-dtype", "int8", "--gather-route", way, names=names, ranks_per_host=1)
                              for way in ("direct", "ring", "auto"))
        routes = [run.plan["communication"]["all_gather"] for run in (direct, ring, auto)]
        expect(routes[0]["route"] == "direct" and routes[1]["route"] == "ring", f"the plans have {routes}", ring.job)
        expect("around a ring" in routes[2]["why"], f"the plan has {routes[2]}", auto.job)
        expect(direct.hash == ring.hash == auto.hash, "another way has other bits", ring.job)
        expect(direct.counted() == ring.counted(), f"{direct.counted()} and {ring.counted()} bytes between nodes", ring.job)
        return routes[2]["why"]


if __name__ == "__main__":
    harness.skip_if_unavailable()
    sys.exit(run_cases([bytes_between_nodes, bits_are_those_of_one_host, hosts_with_unlike_numbers_of_ranks,
                        a_ring_has_the_bits_and_bytes_of_the_straight_way]))
