"""A zeepo server to try, and the model it serves: a tiny one, drawn at random, with a tokenizer and a chat template."""
import http.client
import json
import random
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
VOCAB = 904
TEMPLATE = ("{% for m in messages %}<|user|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|user|>assistant:{% endif %}")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": 48,
    "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "initializer_range": 0.4, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 2,
}
MEMORY = ["--memory", "device=128MiB,host=128MiB", "--threads", "1"]
# Weights through a link so slow that a pass takes a quarter of a second.
SLOW = ["--offload-param", "host", "--prefetch", "0", "--simulate-link", "host-device=4MB/s", "--speculate", "off"]


def until(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def make_model(program, directory):
    """A model with weights: one step of training that changes nothing."""
    start, model = directory / "start", directory / "tiny-chat"
    start.mkdir()
    (start / "config.json").write_text(json.dumps(CONFIG))
    draw = random.Random(1)
    (start / "tokens.bin").write_bytes(b"".join(struct.pack("<H", draw.randrange(VOCAB)) for _ in range(64)))
    subprocess.run([program, "train", "--model", start, "--from-scratch", "--data", start / "tokens.bin", "--seq-len",
                    "8", "--micro-batch", "1", "--steps", "1", "--lr", "0", "--seed", "5", "--device", "cpu",
                    "--output", model, *MEMORY], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.copy(DATA / "golden/tokenizers/llama3-bpe/tokenizer.json", model / "tokenizer.json")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


def generated(program, model, prompts, tokens):
    """What `zeepo generate --batch-file` gives: {prompt: result}."""
    lines = "".join(json.dumps({"prompt": prompt, "max_new_tokens": tokens}) + "\n" for prompt in prompts)
    file = model.parent / "prompts.jsonl"
    file.write_text(lines)
    done = subprocess.run([program, "generate", "--model", model, "--batch-file", file, "--json", "--device", "cpu",
                           *MEMORY], check=True, stdout=subprocess.PIPE, text=True)
    return dict(zip(prompts, map(json.loads, done.stdout.splitlines())))


def generated_ids(program, model, ids, tokens):
    """The new ids of `zeepo generate --ids`."""
    done = subprocess.run([program, "generate", "--model", model, "--ids", ",".join(map(str, ids)), "--max-new-tokens", str(tokens),
                           "--json", "--device", "cpu", *MEMORY], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[0])["ids"]


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.type = response.getheader("Content-Type")
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The JSON of server-sent events; the last must say that it is the last."""
        parts = self.body.decode().split("\n\n")
        assert parts.pop() == "" and parts.pop() == "data: [DONE]", self.body[-200:]
        assert all(part.startswith("data: ") for part in parts), parts
        return [json.loads(part[len("data: "):]) for part in parts]


class Server:
    """Runs while in a `with`; must end with 0 when it is told to, and has said one line. `launch`: mpirun and the like,
    which pass the signal `end` on."""

    def __init__(self, program, model, *options, launch=(), end=signal.SIGTERM):
        self.end = end
        self.process = subprocess.Popen(
            [*launch, program, "serve", "--model", model, "--port", "0", "--device", "cpu", *MEMORY, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        if not found:
            raise AssertionError(f"said {line!r} and {self.process.stderr.read()!r}")
        self.port = int(found[1])
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.append(self.process.stderr.read()))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if kind else self.end)
        code = self.process.wait(timeout=30)
        self.reader.join()
        more = self.process.stdout.read()
        self.process.stdout.close()
        assert kind or (code == 0 and more == ""), (code, more, self.said)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def get(self, path, **headers):
        connection = self.connection()
        connection.request("GET", path, headers=headers)
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def post(self, path, body, **headers):
        connection = self.connection()
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request("POST", path, data, {"Content-Type": "application/json", **headers})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def complete(self, prompt, tokens, **more):
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, **more})

    def stats(self):
        return self.get("/stats").json()
