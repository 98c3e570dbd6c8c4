#!/usr/bin/env python3
"""serve_test.py PROGRAM [SECONDS]: `zeepo serve` as clients see it, well-behaved ones and others.

Many clients at once ask twice each, or for SECONDS, and then report what they saw."""
import gzip
import json
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from server import SLOW, TEMPLATE, Server, generated, generated_ids, make_model, until

PROGRAM = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0
CLIENTS, TOKENS = 64, 24


def prompts():
    words = "one two three tree ocean Über 猫 zero-offload \n\n quick".split(" ")
    return [" ".join(words[(i * 7 + j) % len(words)] for j in range(1 + i % 13)) + f" {i}" for i in range(CLIENTS)]


def streamed_text(answer):
    assert answer.status == 200 and answer.type == "text/event-stream", (answer.status, answer.body)
    events = answer.events()
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    return "".join(event["choices"][0]["text"] for event in events)


def many_clients(server, expected):
    """None is dropped or mixed up: each gets what generate gives for its prompt."""
    faults, answers = [], [0] * CLIENTS
    barrier = threading.Barrier(CLIENTS)
    end = time.monotonic() + SECONDS

    def client(number, prompt):
        try:
            barrier.wait()
            while answers[number] < 2 or time.monotonic() < end:
                stream = (number + answers[number]) % 2 == 0
                answer = server.complete(prompt, TOKENS, stream=stream)
                text = streamed_text(answer) if stream else answer.json()["choices"][0]["text"]
                assert text == expected[prompt]["text"], (prompt, stream, text, expected[prompt]["text"])
                if not stream:
                    usage, result = answer.json()["usage"], expected[prompt]
                    assert usage["prompt_tokens"] == result["prompt_tokens"]
                    assert usage["completion_tokens"] == len(result["ids"])
                    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
                answers[number] += 1
        except Exception as fault:  # told by the main thread
            faults.append((number, repr(fault)))

    threads = [threading.Thread(target=client, args=pair) for pair in enumerate(expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]
    until(lambda: server.stats()["running"] == 0, "all places are free again")
    stats = server.stats()
    assert stats["kv_pages"]["free"] == stats["kv_pages"]["all"] > 0, stats
    assert stats["ended"] >= sum(answers), stats
    if SECONDS:
        print(f"{CLIENTS} clients, {SECONDS:g} s: {sum(answers)} answers, {min(answers)} to {max(answers)} each, none wrong")


def plain_paths(server):
    assert server.get("/health").json() == {"status": "ok"}
    models = server.get("/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "tiny-chat", models
    assert server.get("/v1/models/tiny-chat").json() == models["data"][0]
    expect_error(server.get("/v1/models/other"), 404)
    metrics = server.get("/metrics")
    assert metrics.status == 200 and b"\nzeepo_requests_running 0\n" in metrics.body, metrics.body
    page = server.get("/")
    assert page.status == 200 and page.type.startswith("text/html") and b"<textarea" in page.body
    about = server.stats()["about"]
    assert about["chat"] and about["tiers"][0]["bytes"]["params"] > 0, about


def openai_details(server, expected):
    prompt = next(prompt for prompt in expected if len(expected[prompt]["text"]) > 12)
    text = expected[prompt]["text"]
    # A stop string ends the text before it, in a stream too, and is never shown in part.
    stop = text[5:8]
    cut = text[:text.index(stop)]
    for stream in (False, True):
        answer = server.complete(prompt, TOKENS, stop=[stop, "never there"], stream=stream)
        got = streamed_text(answer) if stream else answer.json()["choices"][0]["text"]
        assert got == cut, (got, cut)
    assert server.complete(prompt, TOKENS, stop=stop).json()["choices"][0]["finish_reason"] == "stop"
    until(lambda: server.stats()["running"] == 0, "texts with stop strings have ended")
    assert server.stats()["abandoned"] == 0, server.stats()
    assert server.complete(prompt, 3).json()["choices"][0]["finish_reason"] == "length"
    # Likelihoods of every token.
    choice = server.complete(prompt, 4, logprobs=3).json()["choices"][0]
    likely = choice["logprobs"]
    assert len(likely["tokens"]) == len(likely["token_logprobs"]) == len(likely["text_offset"]) == 4
    for own, others in zip(likely["token_logprobs"], likely["top_logprobs"]):
        assert own <= 0 and abs(own - max(others.values())) < 1e-5 and len(others) <= 3, likely
    assert server.complete(prompt, 4).json()["choices"][0]["logprobs"] is None
    # A token that is unlikely is there beside the likely ones.
    for seed in range(4):
        likely = server.complete(prompt, 8, temperature=2, seed=seed, logprobs=1).json()["choices"][0]["logprobs"]
        for token, own, others in zip(likely["tokens"], likely["token_logprobs"], likely["top_logprobs"]):
            assert others[token] == own and 1 <= len(others) <= 2, likely
    # Ids, several prompts, several choices of each.
    answer = server.complete([prompt, "another"], 4, n=2).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["choices"][0]["text"] == answer["choices"][1]["text"] != answer["choices"][2]["text"]
    assert server.complete([5, 6, 7], 3).json()["usage"]["prompt_tokens"] == 3
    assert len(server.complete([[5, 6], [7]], 3).json()["choices"]) == 2
    # The same seed, the same text.
    drawn = [server.complete(prompt, 12, temperature=1.5, seed=seed).json()["choices"][0]["text"] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2], drawn
    # Usage at the end of a stream.
    events = server.complete(prompt, 5, stream=True, stream_options={"include_usage": True}).events()
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 5, events[-1]
    assert all(event["usage"] is None for event in events[:-1]), events


def echoes(server, expected, continued):
    """The prompt first; with logprobs its tokens too, whatever runs beside it."""
    prompt = next(prompt for prompt in expected if "Über" in prompt and len(expected[prompt]["text"]) > 3)
    text = expected[prompt]["text"]
    for stream in (False, True):
        answer = server.complete(prompt, TOKENS, echo=True, stream=stream)
        got = streamed_text(answer) if stream else answer.json()["choices"][0]["text"]
        assert got == prompt + text, (got, prompt, text)
    assert server.complete(prompt, 0, echo=True).json()["choices"][0]["text"] == prompt
    assert [choice["text"] for choice in server.complete([prompt, "b"], 0, echo=True, n=2).json()["choices"]] == [prompt] * 2 + ["b"] * 2
    plain = server.complete(prompt, 4, logprobs=2).json()
    scored = server.complete(prompt, 4, echo=True, logprobs=2).json()
    assert scored["usage"] == plain["usage"] and scored["choices"][0]["finish_reason"] == "length"
    tokens = plain["usage"]["prompt_tokens"]
    own, likely = plain["choices"][0]["logprobs"], scored["choices"][0]["logprobs"]
    assert likely["token_logprobs"][0] is None and likely["top_logprobs"][0] is None and likely["text_offset"][0] == 0
    assert all(len(values) == tokens + 4 for values in likely.values()), likely
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert likely[name][tokens:] == own[name], (name, likely, own)
    assert likely["text_offset"][tokens] == len(prompt), likely
    # A token is as likely in a prompt as it was when it was chosen: to the bit.
    alone = server.complete([5, 6, 7], 12, logprobs=0).json()["choices"][0]["logprobs"]["token_logprobs"]
    known = server.complete([5, 6, 7] + continued, 0, echo=True, logprobs=0).json()["choices"][0]["logprobs"]["token_logprobs"]
    assert known[3:] == alone, (known, alone)
    # In a stream the pieces have all of it.
    events = server.complete(prompt, 4, echo=True, logprobs=2, stream=True).events()
    streamed = [value for event in events if event["choices"][0]["logprobs"] for value in event["choices"][0]["logprobs"]["token_logprobs"]]
    assert streamed == likely["token_logprobs"], (streamed, likely)


def odd_bodies(server):
    """Bodies are JSON whatever they are called, and are never expanded."""
    prompt = "word " * 40
    plain = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0, "user": "u" * 20000})
    assert plain.status == 200, plain.body
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""):
        answer = server.post("/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 2, "temperature": 0, "user": "u" * 20000}),
                             **{"Content-Type": kind})
        assert answer.status == 200 and answer.json()["choices"] == plain.json()["choices"], (kind, answer.body)
    bomb = gzip.compress(b" " * (1 << 26) + b'{"prompt":"a","max_tokens":1}')
    expect_error(server.post("/v1/completions", bomb, **{"Content-Encoding": "gzip"}), 400)


def chat(server):
    messages = [{"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    rendered = "<|user|>system: be brief<|end|><|user|>user: hello<|end|><|user|>assistant:"
    plain = server.complete(rendered, 10).json()
    body = {"messages": messages, "max_tokens": 10, "temperature": 0, "model": "tiny-chat"}
    answer = server.post("/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2}).json()
    assert answer["object"] == "chat.completion" and answer["usage"] == plain["usage"], (answer, plain)
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": plain["choices"][0]["text"]}, (message, plain)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] and len(content[0]["top_logprobs"]) == 2
    # Parts of characters have their bytes.
    for text in ("hello", "Über 猫", "three"):
        asked = {**body, "messages": [{"role": "user", "content": text}], "max_tokens": 30, "logprobs": True, "ignore_eos": True}
        choice = server.post("/v1/chat/completions", asked).json()["choices"][0]
        spelled = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
        assert spelled.decode(errors="replace") == choice["message"]["content"], (spelled, choice["message"])
    events = server.post("/v1/chat/completions", {**body, "stream": True}).events()
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == message["content"]
    assert events[-1]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]


def expect_error(answer, status):
    assert answer.status == status, (answer.status, answer.body)
    error = answer.json()["error"]
    assert error["message"] and error["type"], error


def wrong_requests(server):
    good = {"prompt": "a", "max_tokens": 2}
    path, chats = "/v1/completions", "/v1/chat/completions"
    bad = ["", "{", "[]", "null", '"a"', b"\xff\xfe", "{}", '{"prompt":1}', '{"prompt":[]}', '{"prompt":[[]]}',
           '{"prompt":"a","prompt":"b"}', '{"prompt":"\\ud800"}', "[" * 100000, '{"a":' * 1000 + "1" + "}" * 1000]
    for body in bad:
        expect_error(server.post(path, body), 400)
    for change in ({"max_tokens": -1}, {"max_tokens": 1e9}, {"max_tokens": 100000}, {"max_tokens": "a"}, {"temperature": -1},
                   {"temperature": 1e400}, {"temperature": "hot"}, {"top_p": 2}, {"n": 0}, {"n": 100000}, {"n": 1.5}, {"stop": ""},
                   {"stop": 5}, {"stop": ["a"] * 100}, {"logprobs": 1000}, {"stream": "yes"}, {"prompt": [99999999]},
                   {"prompt": [-1]}, {"prompt": ["a", 5]}, {"echo": 1}, {"suffix": "b"}, {"logit_bias": {"5": 1}},
                   {"best_of": 3}, {"seed": "x"}, {"stream_options": 5}, {"presence_penalty": 1}, {"prompt": "a" * 20000}):
        expect_error(server.post(path, {**good, **change}), 400)
    expect_error(server.post(path, {**good, "model": "gpt-4"}), 404)
    hello = [{"role": "user", "content": "a"}]
    for change in ({"messages": []}, {"messages": "a"}, {"messages": [5]}, {"messages": [{"content": "a"}]},
                   {"messages": [{"role": "user", "content": 5}]}, {"tools": [{"type": "function"}]},
                   {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {"chat_template_kwargs": 5},
                   {"response_format": {"type": "json_object"}}, {"top_logprobs": 99, "logprobs": True}, {"top_logprobs": 2}, {"echo": True}):
        expect_error(server.post(chats, {"messages": hello, "max_tokens": 2, **change}), 400)
    for method, where in (("GET", "/nowhere"), ("GET", path), ("POST", "/"), ("PUT", path), ("DELETE", "/v1/models")):
        connection = server.connection()
        connection.request(method, where)
        assert connection.getresponse().status in (404, 400), (method, where)
        connection.close()
    # Pages of other sites, and names that lead here.
    assert server.get("/health", Host="example.com").status == 403
    assert server.post(path, good, Origin="http://example.com").status == 403
    assert server.post(path, good, Origin=f"http://127.0.0.1:{server.port}").status == 200


def received(client):
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    return answer


def expect_raw_error(client, status):
    head, body = received(client).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert json.loads(body)["error"]["message"], body


def half_requests(server):
    """Connections that send a part and wait: late_answers reads what they are told when their time is over."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    clients = []
    for half in (b"G", head[:20], head, head + b"Content-Length: 10\r\n\r\n{"):
        clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        clients[-1].sendall(half)
    return clients


def late_answers(clients):
    for client in clients:
        expect_raw_error(client, 408)
        client.close()


def slow_reader(server, expected):
    """A client with hardly any room for what it is sent: its text ends all the same, others are served, and it gets all."""
    body = json.dumps({"prompt": "a", "max_tokens": 300, "n": 4, "logprobs": 5, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that the system gives
    client.settimeout(30)
    client.connect(("127.0.0.1", server.port))
    before = server.stats()["ended"]
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    for prompt in list(expected)[:8]:
        assert server.complete(prompt, TOKENS).json()["choices"][0]["text"] == expected[prompt]["text"]
    until(lambda: server.stats()["ended"] == before + 12, "nobody waits for the reader")
    answer = received(client)
    client.close()
    assert answer.endswith(b"\r\n0\r\n\r\n") and b"data: [DONE]" in answer, answer[-200:]
    assert answer.count(b'"finish_reason":"length"') == 4, answer[-2000:]


def silent_clients(server, expected):
    """Many connections that say nothing make nobody wait until their time is over."""
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(400)]
    prompt = next(iter(expected))
    assert server.complete(prompt, TOKENS).json()["choices"][0]["text"] == expected[prompt]["text"]
    silent[0].setblocking(False)
    try:
        raise AssertionError(f"has waited until the first one's time was over: {silent[0].recv(1)}")
    except BlockingIOError:
        pass
    for client in silent:
        client.close()


def rude_clients(server, expected):
    """Bytes that are no request, half requests, huge bodies, readers that do not read, clients that leave."""
    rude = []

    def send(data):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        client.sendall(data)
        rude.append(client)
        return client

    body = json.dumps({"prompt": "a", "max_tokens": 400, "stream": True, "ignore_eos": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(12):
        send(b"")  # says nothing
        send(b"POST /v1/comp")  # half a request
        send(head + b"Content-Length: 1000\r\n\r\n{")  # half a body
        send(whole)  # reads nothing
        send(whole).close()  # leaves
    # Half requests that end there are answered.
    for half in (b"P", b"POST /v1/comp", head + b"X-Half: ", head + b"Content-Length: 1000\r\n\r\n{"):
        client = send(half)
        client.shutdown(socket.SHUT_WR)
        expect_raw_error(client, 400)
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 5, b"GET / HTTP/9.9\r\n\r\n",
                 head + b"Content-Length: -5\r\n\r\n", head + b"Content-Length: banana\r\n\r\n{}",
                 head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"A" * 70000, head + b"X: " + b"b" * 60000 + b"\r\n\r\n"):
        try:
            send(data)
        except OSError:  # closed before all of it was sent
            pass
    # Bodies that are larger than may be: told so, with and without their size.
    big = b"x" * (3 << 20)
    for request in (head + b"Content-Length: %d\r\n\r\n" % len(big) + big,
                    head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"):
        expect_raw_error(send(request), 413)
    # Everybody else is served all the while.
    for prompt in list(expected)[:8]:
        assert server.complete(prompt, TOKENS).json()["choices"][0]["text"] == expected[prompt]["text"]
    for client in rude:
        client.close()
    until(lambda: server.stats()["running"] + server.stats()["waiting"] == 0, "places of those who left are free")
    stats = server.stats()
    assert stats["kv_pages"]["free"] == stats["kv_pages"]["all"], stats


def leave_and_queue(model):
    """On a slow server: a client that goes away frees its place, the queue has an end, SIGTERM finishes what runs."""
    with Server(PROGRAM, model, "--max-batch", "1", "--max-queue", "1", "--name", "slow", *SLOW) as server:
        long = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "model": "slow"}
        running, waiting = server.connection(), server.connection()
        for connection, places in ((running, (1, 0)), (waiting, (1, 1))):
            connection.request("POST", "/v1/completions", json.dumps(long))
            until(lambda: (server.stats()["running"], server.stats()["waiting"]) == places, "a place is taken")
        expect_error(server.complete("b", 2), 429)
        waiting.close()
        until(lambda: server.stats()["waiting"] == 0, "who waited and left")
        running.close()
        until(lambda: server.stats()["running"] == 0, "who ran and left")
        # What runs when the signal comes is finished.
        last = server.connection()
        last.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 6, "temperature": 0, "ignore_eos": True}))
        until(lambda: server.stats()["running"] == 1, "the last one runs")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.get("/health").status == 503, "it drains")
        expect_error(server.complete("b", 2), 503)
        answer = last.getresponse()
        assert answer.status == 200 and json.loads(answer.read())["usage"]["completion_tokens"] == 6
        last.close()
        assert server.process.wait(timeout=20) == 0


def drafts(model, expected):
    """Weights from the model's own files, and drafts: the same texts, alone and together."""
    with Server(PROGRAM, model, "--offload-param", "nvme", "--nvme-path", model.parent, "--speculate", "4", "--name",
                "tiny-chat") as server:
        assert server.stats()["about"]["tiers"][2]["in_model_files"] > 0
        for prompt in list(expected)[:4]:
            assert server.complete(prompt, TOKENS).json()["choices"][0]["text"] == expected[prompt]["text"]
        assert server.stats()["speculation"]["drafted"] > 0, server.stats()
        together = server.complete(list(expected)[:12], TOKENS).json()["choices"]
        assert [choice["text"] for choice in together] == [expected[prompt]["text"] for prompt in list(expected)[:12]]
        metrics = server.get("/metrics").body
        assert b"\nzeepo_drafted_tokens_total " in metrics and b"\nzeepo_accepted_tokens_total " in metrics, metrics


def keys(model, directory):
    (directory / "keys").write_text("first-key\n\n  second-key \n")
    (model / "chat_template.jinja").unlink()  # and a model without a chat template
    with Server(PROGRAM, model, "--api-key-file", directory / "keys", "--max-body", "1KiB") as server:
        assert server.get("/health").status == 200
        for shown in ({}, {"Authorization": "Bearer first-ke"}, {"Authorization": "Bearer first-key2"}, {"Authorization": "first-key"},
                      {"Authorization": "Bearer "}):
            expect_error(server.get("/v1/models", **shown), 401)
            expect_error(server.post("/v1/completions", {"prompt": "a"}, **shown), 401)
        for key in ("first-key", "second-key"):
            shown = {"Authorization": f"Bearer {key}"}
            assert server.get("/v1/models", **shown).status == 200
            assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}, **shown).status == 200
        expect_error(server.post("/v1/completions", {"prompt": "a" * 2000}, **shown), 413)
        expect_error(server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, **shown), 400)
    (model / "chat_template.jinja").write_text(TEMPLATE)


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = make_model(PROGRAM, directory)
        expected = generated(PROGRAM, model, prompts(), TOKENS)
        continued = generated_ids(PROGRAM, model, [5, 6, 7], 12)
        with Server(PROGRAM, model, "--max-batch", "24", "--max-queue", "128", "--max-body", "2MiB") as server:
            halves = half_requests(server)
            plain_paths(server)
            many_clients(server, expected)
            openai_details(server, expected)
            echoes(server, expected, continued)
            odd_bodies(server)
            chat(server)
            wrong_requests(server)
            silent_clients(server, expected)
            rude_clients(server, expected)
            slow_reader(server, expected)
            late_answers(halves)
            many_clients(server, expected)
        leave_and_queue(model)
        drafts(model, expected)
        keys(model, directory)


main()
