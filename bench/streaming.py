#!/usr/bin/env python3
"""streaming.py PROGRAM: what a pass costs with weights that stream over a throttled link on the CPU, for batches of several sizes.

A random model of some 8 million parameters is made first. Its weights live in host memory or in files; the link or the disk carries the
model's bytes once a second, so that a pass is waiting for weights. Each row: seconds a step of one token each (the pass in the middle after
the prompts), the time that its bytes alone need, and tokens/s.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 768,
    "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 2,
}
WEIGHTS = {"host": ["--offload-param", "host"], "nvme": ["--offload-param", "nvme"]}


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(map(str, arguments))}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def make_model(program, directory):
    start, model = directory / "start", directory / "model"
    start.mkdir()
    (start / "config.json").write_text(json.dumps(CONFIG))
    draw = random.Random(1)
    (start / "tokens.bin").write_bytes(b"".join(struct.pack("<H", draw.randrange(1024)) for _ in range(64)))
    run(program, "train", "--model", start, "--from-scratch", "--data", start / "tokens.bin", "--seq-len", 8, "--micro-batch", 1,
        "--steps", 1, "--lr", 0, "--device", "cpu", "--output", model)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--tokens", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        model = make_model(arguments.program, directory)
        rate = sum(file.stat().st_size for file in model.glob("*.safetensors"))
        print(f"a link and a disk of {rate / 1e6:.1f} MB/s")
        print("| weights | KV cache | batch | seconds a step | its bytes alone | times | tokens/s |\n|---|---|---|---|---|---|---|")
        for weights, options in WEIGHTS.items():
            for kv in ("none", "host"):
                for batch in map(int, arguments.batches.split(",")):
                    file = directory / "prompts.jsonl"
                    file.write_text("".join(json.dumps({"ids": [i % 1000 + 3] * 8}) + "\n" for i in range(batch)))
                    link = "host-device" if weights == "host" else "nvme"
                    summary = run(arguments.program, "generate", "--model", model, "--batch-file", file, "--max-batch", batch,
                                  "--max-new-tokens", arguments.tokens, "--ignore-eos", "--json", "--device", "cpu", "--offload-kv", kv,
                                  "--nvme-path", directory, "--simulate-link", f"{link}={rate}/s", "--speculate", "off",
                                  "--memory", "device=256MiB,host=256MiB", *options)[-1]
                    rank = summary["ranks"][0]
                    moved = rank["link_bytes"]["host_to_device"] if weights == "host" else rank["io_bytes"]["read"]
                    step = summary["seconds_per_step"]
                    print(f"| {weights} | {'device' if kv == 'none' else kv} | {batch} | {step:.3f} | {moved / rate:.3f} | "
                          f"{step * rate / moved:.3f} | {batch / step:.1f} |", flush=True)


main()
