#!/usr/bin/env python3
"""ranks_test.py PROGRAM MPIRUN: `mpirun -n 2 zeepo serve`: rank 0 alone speaks, the texts are those of one rank, and a signal
to mpirun or to any rank lets what runs end."""
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from server import SLOW, Server, generated, make_model, until

PROGRAM, MPIRUN = sys.argv[1:3]
RANKS, TOKENS = 2, 16


def process_of_rank(server, rank):
    """Of the ranks that this mpirun has started."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            known = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if parent == server.process.pid and b"OMPI_COMM_WORLD_RANK=%d" % rank in known:
            return int(process.name)
    raise AssertionError(f"no rank {rank}")


def answers(server, expected):
    """All of them at once."""
    got = {}

    def ask(prompt):
        got[prompt] = server.complete(prompt, TOKENS).json()["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {prompt: result["text"] for prompt, result in expected.items()}, got


def end_by(server, send):
    """What runs when the signal comes is finished."""
    last = server.connection()
    last.request("POST", "/v1/completions",
                 json.dumps({"prompt": "a", "max_tokens": 6, "temperature": 0, "ignore_eos": True}))
    until(lambda: server.stats()["running"] == 1, "the last one runs")
    send()
    until(lambda: server.get("/health").status == 503, "it drains")
    answer = last.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["usage"]["completion_tokens"] == 6
    last.close()
    assert server.process.wait(timeout=30) == 0, server.said


def scores(server):
    """Of a prompt whose every row of logits is wanted."""
    return server.complete("prompt 5 of eight", 0, echo=True, logprobs=1).json()["choices"][0]["logprobs"]


def main():
    launch = [MPIRUN, "-n", str(RANKS)]
    with tempfile.TemporaryDirectory() as name:
        model = make_model(PROGRAM, Path(name))
        expected = generated(PROGRAM, model, [f"prompt {i} of eight" + " and" * i for i in range(8)], TOKENS)
        with Server(PROGRAM, model) as server:
            alone = scores(server)
        with Server(PROGRAM, model, launch=launch, end=signal.SIGUSR1) as server:
            answers(server, expected)
            assert scores(server) == alone, (scores(server), alone)
            stats = server.stats()
            assert stats["about"]["ranks"] == RANKS, stats["about"]
        # Idle, and at work.
        with Server(PROGRAM, model, launch=launch) as server:
            os.kill(process_of_rank(server, 1), signal.SIGTERM)
            assert server.process.wait(timeout=30) == 0, server.said
        for send in (lambda: os.kill(process_of_rank(server, 1), signal.SIGTERM),
                     lambda: server.process.send_signal(signal.SIGUSR1)):
            with Server(PROGRAM, model, *SLOW, launch=launch) as server:
                end_by(server, send)


main()
