#!/usr/bin/env bash
# run.sh PROGRAM DIRECTORY [STEPS]: trains a tiny language model on zeepo's own sources and lets it write.
# `./dev demo` calls it.
set -euo pipefail
program=$(realpath "$1") steps=${3:-500}
mkdir -p "$2"
work=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

show() {
  printf '\n$ zeepo'
  printf ' %q' "$@"
  printf '\n'
}

find README.md docs src -type f \( -name '*.md' -o -name '*.h' -o -name '*.cpp' \) -print0 | LC_ALL=C sort -z |
  xargs -0 cat >"$work/corpus.txt"
echo "The corpus is what this project is written in: $(wc -c <"$work/corpus.txt") bytes of it, in $2/corpus.txt."

train=(train --model examples/demo --from-scratch --data "$work/corpus.txt" --seq-len 256 --micro-batch 8
       --steps "$steps" --lr 3e-3 --schedule cosine --warmup 20 --seed 1 --log "$work/log.jsonl" --output "$work/model")
rm -rf "$work/model"
show "${train[@]}"
if [[ -t 2 ]]; then
  "$program" "${train[@]}"
else  # a line every now and then instead of one that changes
  "$program" "${train[@]}" 2> >(awk '!/^step / || ++n % 25 == 1' >&2)
fi

echo
echo "The loss fell, from what guessing gives, log 700 = 6.55, to:"
sed -nE 's/^\{"event":"step","step":([0-9]+),"loss":([0-9.]+),.*/\1 \2/p' "$work/log.jsonl" |
  awk -v every=$(((steps + 5) / 6)) '$1 == 1 || $1 % every == 0 {
    printf "  step %4d  %5.2f  ", $1, $2
    for (i = 0; i < $2 * 8; ++i) printf "#"
    printf "\n"
  }'

generate=(generate --model "$work/model" --prompt "// The " --max-new-tokens 160 --temperature 0.7 --top-p 0.9 --seed 1
          --ignore-eos)
show "${generate[@]}"
"$program" "${generate[@]}"

cat <<END

The trained model is a Hugging Face directory: $2/model. Try next:
  build/zeepo generate --model $2/model --prompt "Tensor " --temperature 0.7
  build/zeepo train --model $2/model --data $2/corpus.txt --seq-len 256 --micro-batch 8 --steps 300 --output $2/longer
  build/zeepo train --help
A model directory with weights from elsewhere (gpt2, llama, qwen2, qwen3, mistral) works the same way.
END
