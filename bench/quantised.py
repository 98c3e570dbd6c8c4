#!/usr/bin/env python3
"""quantised.py PROGRAM MODEL TEXT.txt: what int8 and int4 weights cost in perplexity and logits, and what speculation gains.

MODEL is a trained model with a tokenizer, as `./dev demo` leaves one; TEXT is what the perplexity is taken of, the last
part of it where it is long. Speculation runs with a link of 20 times the model's bytes a second, so that waiting for weights is most of
a pass, beside plain decoding in the same run; the tokens must be the same.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import tempfile


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(map(str, arguments))}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read_logits(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    rows, vocab = json.loads(data[8:8 + length])["logits"]["shape"]
    values = struct.unpack(f"<{rows * vocab}f", data[8 + length:8 + length + 4 * rows * vocab])
    return [values[r * vocab:(r + 1) * vocab] for r in range(rows)]


def negative_log_likelihood(logits, ids):
    total = 0.0
    for row, target in zip(logits, ids[1:]):
        most = max(row)
        total += most + math.log(sum(math.exp(x - most) for x in row)) - row[target]
    return total


def quality(program, model, chunks):
    print("| weights | perplexity | logits, relative L2 (largest of a chunk) | bytes over the link |")
    print("|---|---|---|---|")
    exact = []
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "logits.safetensors"
        for dtype in ("same", "int8", "int4"):
            lost, tokens, furthest, link = 0.0, 0, 0.0, 0
            for i, ids in enumerate(chunks):
                summary = run(program, "generate", "--model", model, "--ids", ",".join(map(str, ids)), "--max-new-tokens", 2,
                              "--offload-param", "host", "--weights-dtype", dtype, "--logits", out, "--json",
                              "--speculate", "off", "--ignore-eos", "--cache-dir", scratch)[-1]
                link = summary["ranks"][0]["link_bytes"]["host_to_device"]
                logits = read_logits(out)
                if dtype == "same":
                    exact.append(logits)
                away = sum((a - b) ** 2 for x, y in zip(logits, exact[i]) for a, b in zip(x, y))
                size = sum(b * b for y in exact[i] for b in y)
                furthest = max(furthest, math.sqrt(away / size))
                lost += negative_log_likelihood(logits, ids)
                tokens += len(ids) - 1
            print(f"| {dtype} | {math.exp(lost / tokens):.4f} | {furthest:.4f} | {link} |", flush=True)


def speculation(program, model, prompt, rate):
    print("\n| decoding | tokens/s | beside plain | drafted | accepted |")
    print("|---|---|---|---|---|")
    plain = None
    for sampling in ([], ["--temperature", 0.7, "--seed", 1]):
        for drafts in ("off", 4, 8, 12):
            result, summary = run(program, "generate", "--model", model, "--prompt", prompt, "--max-new-tokens", 160,
                                  "--ignore-eos", "--offload-param", "host", "--simulate-link",
                                  f"host-device={rate}B/s", "--speculate", drafts, "--json", *sampling)
            if drafts == "off":
                plain = result
            if result["ids"] != plain["ids"]:
                raise SystemExit(f"--speculate {drafts} gave other tokens than plain decoding")
            name = ("sampled" if sampling else "greedy") + (", plain" if drafts == "off" else f", --speculate {drafts}")
            told = summary["speculation"]
            print(f"| {name} | {result['tokens_per_second']:.1f} | {result['tokens_per_second'] / plain['tokens_per_second']:.2f} | "
                  f"{told['drafted']} | {told['accepted']} |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("model")
    arguments.add_argument("text")
    arguments.add_argument("--chunks", type=int, default=8)
    arguments.add_argument("--chunk-tokens", type=int, default=256)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tokens = pathlib.Path(scratch) / "tokens.bin"
        run(given.program, "tokenize", "--model", given.model, "--input", given.text, "--output", tokens)
        data = tokens.read_bytes()
    config = json.loads((pathlib.Path(given.model) / "config.json").read_text())
    code = "H" if config["vocab_size"] <= 65536 else "I"
    ids = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    wanted = given.chunks * given.chunk_tokens
    ids = ids[-wanted:]
    chunks = [ids[i:i + given.chunk_tokens] for i in range(0, len(ids) - 1, given.chunk_tokens)]
    quality(given.program, given.model, chunks)
    model_bytes = sum(f.stat().st_size for f in pathlib.Path(given.model).glob("*.safetensors"))
    speculation(given.program, given.model, "void Engine::", 20 * model_bytes)


if __name__ == "__main__":
    main()
