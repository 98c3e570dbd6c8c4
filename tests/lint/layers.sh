#!/usr/bin/env bash
# Every folder includes only what stands below it in the table of src/zeepo/CMakeLists.txt, directly or through another;
# headers of CUDA, NCCL, MPI and io_uring appear only in folders of that name. Prints each line that breaks this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../src/zeepo"

find . -name '*.h' -o -name '*.cpp' -o -name '*.cu' | sort | sed 's|^\./||' | xargs awk '
  # The table: zeepo_layer(NAME LAYERS a b ... LIBRARIES ...)
  BEGIN {
    while ((getline line < "CMakeLists.txt") > 0) {
      if (line !~ /^zeepo_layer\(/) continue
      gsub(/^zeepo_layer\(|\)/, "", line)
      words = split(line, word, /[ \t]+/)
      layer = word[1]
      known[layer] = below[layer, layer] = 1
      in_layers = 0
      for (i = 2; i <= words; ++i) {
        if (word[i] ~ /^(LAYERS|LIBRARIES|BACKENDS)$/) { in_layers = word[i] == "LAYERS"; continue }
        if (!in_layers) continue
        # Lower layers come first in the table, so what they may see is complete.
        if (!(word[i] in known)) { print "CMakeLists.txt: " layer " stands on " word[i] ", which comes after it"; bad = 1 }
        for (other in known) if ((word[i], other) in below) below[layer, other] = 1
      }
    }
    foreign["cuda"] = "^(cuda|cublas|cudnn|cub/|thrust/)"
    foreign["nccl"] = "^nccl"
    foreign["mpi"] = "^mpi\\.h"
    foreign["uring"] = "^liburing"
  }
  function report(what) { print "src/zeepo/" FILENAME ":" FNR ": " what; bad = 1 }
  FNR == 1 {
    parts = split(FILENAME, part, "/")
    folder = part[1]
    # The program may see everything, and so may zeepo.h, the header for those who use the library.
    free = folder == "cli" || parts == 1
    if (!free && !(folder in known)) report("the folder " folder " is not in the table")
  }
  /^[ \t]*#[ \t]*include[ \t]/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header)
    sub(/[>"].*$/, "", header)
    for (kind in foreign)
      if (header ~ foreign[kind] && ("/" FILENAME) !~ ("/" kind "/")) report(header " outside of a folder " kind)
    if (header !~ /^zeepo\//) next
    split(header, piece, "/")
    if (!free && !((folder, piece[2]) in below)) report(folder " does not stand on " piece[2] ": " header)
  }
  END { exit bad }
'
