#!/usr/bin/env bash
# Weak scaling on one machine: 1, 2, 4 and 8 ranks under mpirun, each with the same micro-batch, stages 0 and 3.
#
# The ranks share this machine's cores, so wall time says nothing: the measure is tokens per core second, user and
# system time of the whole job, relative to one rank. Each job runs twice, for few steps and for more; the difference
# is the steps without the start and the end. More ranks take fewer steps, so that all are measured over as many tokens.
# `bench/scaling.sh [PROGRAM]`, by default build/zeepo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

zeepo=${1:-build/zeepo}
few=2 work_steps=24 micro_batch=4 seq_len=128  # work_steps: of one rank; of 8 ranks an eighth

[[ -x $zeepo ]] || { echo "scaling: $zeepo is not there; build it first: ./dev build" >&2; exit 1; }
if ! command -v mpirun >/dev/null; then
  echo "scaling: no mpirun on this machine, nothing measured"
  exit 0
fi

# Settings as variables, which another MPI ignores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/config.json" <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 512, "n_embd": 256, "n_layer": 6,
 "n_head": 4, "n_positions": 128, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END

# job RANKS STAGE STEPS: core seconds; the log is left in $work/log.
job() {
  local TIMEFORMAT='%U %S'
  { time mpirun -n "$1" "$zeepo" train --device cpu --model "$work" --from-scratch --data tests/data/golden/gpt2-tiny/tokens.bin \
    --seq-len $seq_len --micro-batch $micro_batch --stage "$2" --steps "$3" --threads 1 --log "$work/log" \
    >"$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }; } 2>&1 | awk '{ print $1 + $2 }'
}

# Tokens of all steps in the log.
tokens() { grep '"event":"step"' "$work/log" | sed -E 's/.*"tokens":([0-9]+).*/\1/' | awk '{ sum += $1 } END { print sum }'; }

echo "| stage | ranks | tokens | core seconds | tokens per core second | of one rank |"
echo "|---|---|---|---|---|---|"
for stage in 0 3; do
  one=
  for ranks in 1 2 4 8; do
    few_seconds=$(job $ranks $stage $few) few_tokens=$(tokens)
    more_seconds=$(job $ranks $stage $((few + work_steps / ranks))) more_tokens=$(tokens)
    row=$(awk -v s="$few_seconds $more_seconds" -v t="$few_tokens $more_tokens" -v one="$one" 'BEGIN {
      split(s, seconds, " "); split(t, tokens, " ")
      n = tokens[2] - tokens[1]; spent = seconds[2] - seconds[1]
      rate = spent > 0 ? n / spent : 0
      printf "%d | %.2f | %.0f | %.2f", n, spent, rate, one == "" ? 1 : rate / one }')
    [[ -n $one ]] || one=$(cut -d'|' -f3 <<<"$row")
    echo "| $stage | $ranks | $row |"
  done
done
