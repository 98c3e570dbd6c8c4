#!/usr/bin/env bash
# Builds and runs the CUDA backend's tests and benchmarks on a machine with a GPU: Ubuntu 24.04 with CUDA 13.
#
#   bench/gpu.sh                builds here, then runs
#   bench/gpu.sh --pack FOLDER  builds portable programs on any machine with nvcc and puts them, with the shared
#                               libraries that a GPU machine may lack, into FOLDER; runs nothing (also: ./dev pack)
#   bench/gpu.sh --run FOLDER   runs the programs of such a folder; installs nothing
#
# What builds installs the packages that are missing, and says so; nvcc must be there.
#
# ZEEPO_GPU_PARTS chooses what runs, by default "test ranks memcheck racecheck bench". compute-sanitizer takes
# minutes, racecheck some ten: without it, or for the ranks without mpirun, on the PATH its parts are left out, and said
# so.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
programs=(test_kernels_cuda test_comm_cuda test_comm_nccl test_train_cuda zeepo bench_cuda_kernels bench_cuda_attention bench_cuda_batch_invariant)
parts=${ZEEPO_GPU_PARTS:-test ranks memcheck racecheck bench}

die() {
  echo "gpu.sh: $*" >&2
  exit 1
}

# build FOLDER [options...]
build() {
  local folder=$1
  shift
  source "$root/tools/packages.sh"
  need "${gpu_packages[@]}"
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || die "no nvcc, neither on the PATH nor in /usr/local/cuda/bin: install CUDA 13"
  cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEEPO_CUDA=ON -DZEEPO_TESTS=ON \
    -DZEEPO_BENCH=ON "$@" --log-level=WARNING
  cmake --build "$folder" --target "${programs[@]}"
}

# pack FOLDER: programs, and the libraries they name that are neither the system's nor CUDA's.
pack() {
  local folder=$1 library
  build "$root/build/gpu" -DZEEPO_PORTABLE=ON
  mkdir -p "$folder"
  for program in "${programs[@]}"; do
    cp "$root/build/gpu/$program" "$folder/"
    ldd "$root/build/gpu/$program" | awk '$1 ~ /^lib(hwy|fmt|gtest|benchmark|cpp-httplib|ssl|crypto|brotli)/ { print $3 }' | while read -r library; do
      cp -L "$library" "$folder/"
    done
  done
  strip "${programs[@]/#/$folder/}"
  mkdir -p "$folder/data/golden"
  cp -r "$root"/tests/data/golden/{llama,gpt2}-tiny "$folder/data/golden/"
  du -sh "$folder"
}

# heading TEXT
heading() { printf '\n== %s\n' "$1"; }

run() {
  local folder=$1 status=0 part tool ranks
  [[ -x $folder/${programs[0]} ]] || die "$folder has no ${programs[0]}: bench/gpu.sh --pack makes such a folder"
  command -v nvidia-smi >/dev/null || die "no nvidia-smi: is there a GPU?"
  # Open MPI: as root too, and more ranks than cores.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
  [[ ! -d $folder/data ]] || export ZEEPO_TEST_DATA=$folder/data
  export LD_LIBRARY_PATH="$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  heading "GPU"
  nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader
  for part in $parts; do
    heading "$part"
    case $part in
      test)
        "$folder/test_kernels_cuda" --gtest_brief=1 || status=1
        "$folder/test_comm_cuda" --gtest_brief=1 || status=1
        ;;
      ranks)
        if command -v mpirun >/dev/null; then
          for ranks in 2 3; do mpirun -n $ranks "$folder/test_comm_nccl" --gtest_brief=1 || status=1; done
          ZEEPO_PROGRAM=$folder/zeepo ZEEPO_MPIRUN=$(command -v mpirun) "$folder/test_train_cuda" --gtest_brief=1 ||
            status=1
        else
          echo "mpirun is not on the PATH: left out"
        fi
        ;;
      memcheck | racecheck)
        # A test asks for more memory than there is. The shared memory of cuBLASLt's and cuDNN's kernels, which racecheck
        # reports on, is not ours to judge; all of ours are in namespace zeepo.
        tool=(compute-sanitizer --tool "$part" --error-exitcode 9)
        if [[ $part == memcheck ]]; then tool+=(--report-api-errors no); else tool+=(--kernel-name kns=zeepo); fi
        if command -v compute-sanitizer >/dev/null; then
          "${tool[@]}" "$folder/test_kernels_cuda" --gtest_brief=1 || status=1
          "${tool[@]}" "$folder/test_comm_cuda" --gtest_brief=1 --gtest_filter='-Nccl*' || status=1
          if [[ $part == memcheck ]]; then  # those of training that are short and want no mpirun
            "${tool[@]}" "$folder/test_train_cuda" --gtest_brief=1 \
              --gtest_filter='OnAGpu/OneRank.*/bf16:RanksOnGpus.TheBytesSent*' || status=1
          fi
        else
          echo "compute-sanitizer is not on the PATH: left out"
        fi
        ;;
      bench)
        "$folder/bench_cuda_kernels" || status=1
        "$folder/bench_cuda_attention" || status=1
        ;;
      *) die "ZEEPO_GPU_PARTS: $part: must be test, ranks, memcheck, racecheck or bench" ;;
    esac
  done
  return $status
}

case ${1:-} in
  "")
    build "$root/build/gpu"
    run "$root/build/gpu"
    ;;
  --pack) pack "${2:?--pack needs a folder}" ;;
  --run) run "$(cd "${2:?--run needs a folder}" && pwd)" ;;
  *) die "no such option: $1; see the top of this file" ;;
esac
