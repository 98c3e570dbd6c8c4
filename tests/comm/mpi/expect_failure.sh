#!/usr/bin/env bash
# expect_failure.sh TEXT... -- COMMAND...: the command must fail, and print a line that matches each extended regex.
set -uo pipefail
texts=()
while [[ $1 != -- ]]; do texts+=("$1") && shift; done
shift
output=$("$@" 2>&1)
code=$?
printf '%s\n' "$output"
((code != 0)) || { echo "expected a failure, got exit code 0" && exit 1; }
for text in "${texts[@]}"; do
  grep -qE -- "$text" <<<"$output" || { echo "no line matches: $text" && exit 1; }
done
