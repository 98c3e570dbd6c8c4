#!/usr/bin/env bash
# zeepo beside PyTorch on this machine's CPU: one training step of GPT-2 small (124M), batch 4 x 256, fp32, all cores.
# They take turns, three times each, so that a slow minute of the machine meets both; the best of each counts.
# PyTorch comes from pip, into a virtual environment below build/bench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=build/bench
mkdir -p "$work/model"
if ! "$work/venv/bin/python" -c 'import torch' 2>/dev/null; then
  echo "installing PyTorch into $work/venv"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet torch numpy
fi
cat >"$work/model/config.json" <<'END'
{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
 "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
END
"$work/venv/bin/python" - "$work/tokens.bin" <<'END'
import random, struct, sys
random.seed(0)
tokens = [random.randrange(50257) for _ in range(4 * 256 + 1)]
open(sys.argv[1], "wb").write(struct.pack(f"<{len(tokens)}H", *tokens))
END
steps=6
for turn in 1 2 3; do
  "$work/venv/bin/python" bench/torch_cpu.py "$steps" >"$work/torch-$turn.json"
  build/zeepo train --model "$work/model" --from-scratch --data "$work/tokens.bin" --no-shuffle --seq-len 256 \
    --micro-batch 4 --steps "$steps" --lr 1e-4 --device cpu --log "$work/zeepo-$turn.jsonl" 2>/dev/null
done
"$work/venv/bin/python" - "$work" <<'END'
import json, sys
work, tokens, flops = sys.argv[1], 4 * 256, 6 * 124.4e6 * 4 * 256
peer = [json.load(open(f"{work}/torch-{turn}.json")) for turn in (1, 2, 3)]
ours = []
for turn in (1, 2, 3):
    events = [json.loads(line) for line in open(f"{work}/zeepo-{turn}.jsonl")]
    later = sorted(e["seconds"] for e in events if e["event"] == "step" and e["step"] > 1)
    ours.append({"seconds": later[len(later) // 2], "rss_bytes": events[-1]["ranks"][0]["rss_bytes"]})
print("| | tokens/s, best (all turns) | GFLOP/s | peak memory |\n|---|---|---|---|")
for name, runs in ((f"PyTorch {peer[0]['torch']}", peer), ("zeepo", ours)):
    rates = [tokens / run["seconds"] for run in runs]
    print(f"| {name} | {max(rates):.0f} ({', '.join(f'{rate:.0f}' for rate in rates)}) | "
          f"{max(rates) / tokens * flops / 1e9:.0f} | {max(run['rss_bytes'] for run in runs) / 2**30:.2f} GiB |")
best = lambda runs: min(run["seconds"] for run in runs)
print(f"\nzeepo is {best(peer) / best(ours):.2f} times as fast, with "
      f"{max(r['rss_bytes'] for r in ours) / max(r['rss_bytes'] for r in peer):.0%} of the memory")
END
