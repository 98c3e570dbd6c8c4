#!/usr/bin/env bash
# run.sh CMAKE BUILD FOLDER [MPIRUN]: installs BUILD, moves what was installed, and builds and runs the project beside this
# file against it. FOLDER is emptied first, and what was installed there goes at the end.
set -euo pipefail
cmake=$1 build=$2 folder=$3 mpirun=${4:-}
project=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$project/../.." && pwd)
installed=$folder/moved

die() {
  echo "outside: $*" >&2
  exit 1
}

rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$installed"' EXIT
"$cmake" --install "$build" --prefix "$folder/first" >"$folder/install.log" || { cat "$folder/install.log" && exit 1; }
mv "$folder/first" "$installed"
"$installed/bin/zeepo" --version

# Nothing names the machine that built it, and no header needs one that stayed behind.
if grep -rnF -e "$source" -e "$build" -e "$folder/first" "$installed"/lib*/cmake; then die "installed files name these paths"; fi
while read -r header; do
  [[ -f $installed/include/$header ]] || die "$header is included by an installed header, and is not installed"
done < <(grep -rhoP '#include "\Kzeepo/[^"]+' "$installed/include" | sort -u)

# configure NAME [options...]: with a new cache each time.
configure() {
  "$cmake" -S "$project" -B "$folder/$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$installed" "${@:2}"
}

# A dependency that is missing is named, with the package that has it.
if configure missing -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON >"$folder/missing.log" 2>&1; then
  die "configured without nlohmann_json"
fi
tr -s ' \n' ' ' <"$folder/missing.log" | grep -q "zeepo was built with nlohmann_json, .* install nlohmann-json3-dev" ||
  { cat "$folder/missing.log" && die "does not say what to install"; }

sed -n '/^```cpp$/,/^```$/p' "$source/docs/library.md" | sed '/^```/d' >"$folder/documented.cpp"
configure build -DDOCUMENTED="$folder/documented.cpp" --log-level=WARNING
"$cmake" --build "$folder/build"
program=$folder/build/outside
"$program" | grep '"world_size":1'
"$folder/build/documented" | grep '^step 80  loss 0\.[0-2]'
[[ -n $mpirun ]] || exit 0
"$mpirun" -n 2 "$program" | grep '"world_size":2'
"$source/tests/comm/mpi/expect_failure.sh" "rank 1: the points end here" -- timeout 60 "$mpirun" -n 2 "$program" fail
