#!/usr/bin/env python3
"""One step of models of many tiny layers: whether planning, set-up and the step grow with the number of units.

bench/many_layers.py ZEEPO [--layers 1000,4000,8000] [--tiles 1,4] [zeepo's options]: trains a GPT-2 of width 8 from scratch for
one step on one thread, and prints the processor time of the process, that of one unit, and the most memory. A block is a unit;
with `--tile-linear N`, so is each tile of its four linear layers.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import tempfile

LINEAR_LAYERS = 4  # of a block
VOCAB = 64


def make_model(folder, layers):
    config = {"model_type": "gpt2", "n_layer": layers, "n_head": 2, "n_embd": 8, "vocab_size": VOCAB, "n_positions": 32}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokens.bin").write_bytes(b"".join(struct.pack("<H", i * i % VOCAB) for i in range(1000)))


def step(program, layers, tiles, options):
    """Processor seconds and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_model(folder, layers)
        process = subprocess.Popen([program, "train", "--model", folder, "--from-scratch", "--data", folder / "tokens.bin",
                                    "--seq-len", "8", "--steps", "1", "--threads", "1", "--device", "cpu", "--tile-linear",
                                    str(tiles), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"{layers} layers, {tiles} tiles: {said}")
        return usage.ru_utime, usage.ru_maxrss * 1024


def main():
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--layers", type=numbers, default=[1000, 4000, 8000])
    parser.add_argument("--tiles", type=numbers, default=[1, 4])
    given, options = parser.parse_known_args()
    print("| layers | tiles | units | user CPU s | µs a unit | peak MiB |\n|---|---|---|---|---|---|")
    for tiles in given.tiles:
        for layers in given.layers:
            units = layers * (1 if tiles == 1 else 1 + LINEAR_LAYERS * tiles)
            seconds, peak = step(given.program, layers, tiles, options)
            print(f"| {layers:,} | {tiles} | {units:,} | {seconds:.2f} | {seconds / units * 1e6:.0f} | {peak / 2**20:.0f} |",
                  flush=True)


if __name__ == "__main__":
    main()
