#!/usr/bin/env bash
# What --moments does to the loss: a byte model of 1.9M parameters, from scratch on this project's own text, fp32, AdamW, the
# same seed and data for each. Prints the mean loss of steps 91-100 and of the last ten, and the optimizer's bytes a weight.
# usage: bench/moments.sh [STEPS] [SEEDS...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=${1:-300}
shift || true
seeds=("${@:-1}")
work=build/bench/moments
mkdir -p "$work"
cat >"$work/config.json" <<'END2'
{"model_type": "gpt2", "n_embd": 192, "n_layer": 4, "n_head": 6, "n_positions": 128, "vocab_size": 256,
 "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
END2
find docs src tests \( -name '*.md' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 | LC_ALL=C sort -z |
  xargs -0 cat | python3 -c '
import struct, sys
data = sys.stdin.buffer.read()
open(sys.argv[1], "wb").write(struct.pack(f"<{len(data)}H", *data))' "$work/tokens.bin"
for beta2 in 0.95 0.999; do
  for seed in "${seeds[@]}"; do
    for moments in fp32 bf16 8bit; do
      "${ZEEPO:-build/zeepo}" train --model "$work" --from-scratch --data "$work/tokens.bin" --seq-len 128 --micro-batch 8 \
        --steps "$steps" --lr 1e-3 --warmup 20 --schedule cosine --betas "0.9,$beta2" --seed "$seed" --device cpu \
        --moments "$moments" --log "$work/$moments-$beta2-$seed.jsonl" 2>/dev/null
    done
  done
done
python3 - "$work" "${seeds[@]}" <<'END2'
import json, sys
work, seeds = sys.argv[1], sys.argv[2:]
print("| beta2 | seed | moments | loss, steps 91-100 | last ten | beside fp32 | optimizer bytes a weight |")
print("|---|---|---|---|---|---|---|")
for beta2 in ("0.95", "0.999"):
    for seed in seeds:
        base = None
        for moments in ("fp32", "bf16", "8bit"):
            events = [json.loads(line) for line in open(f"{work}/{moments}-{beta2}-{seed}.jsonl")]
            losses = [e["loss"] for e in events if e["event"] == "step"]
            mean = lambda part: sum(part) / len(part)
            last = mean(losses[-10:])
            base = base or last
            summary = events[-1]
            kept = summary["ranks"][0]["peak_bytes"]["device"]["optimizer"] / summary["params"]
            print(f"| {beta2} | {seed} | {moments} | {mean(losses[90:100]):.4f} | {last:.4f} | {last - base:+.4f} | {kept:.3f} |")
END2
