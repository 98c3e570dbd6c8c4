# Sourced by ./dev and bench/gpu.sh, which have a function die: the Debian and Ubuntu packages that zeepo stands on, and
# how those that are missing are installed.

build_packages=(g++ cmake ninja-build ccache pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev
                libhwy-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev liburing-dev
                libcpp-httplib-dev libopenmpi-dev openmpi-bin)
test_packages=("${build_packages[@]}" libgtest-dev clang python3-dev python3-venv openssh-client openssh-server iproute2)
wanted_test_packages=(chromium)  # Ubuntu has it as a snap alone
bench_packages=("${build_packages[@]}" libbenchmark-dev libopenblas-dev python3-venv fio)
lint_packages=("${test_packages[@]}" libbenchmark-dev libopenblas-dev clang-format clang-tidy)
gpu_packages=("${build_packages[@]}" libgtest-dev libbenchmark-dev libopenblas-dev)  # and nvcc, which is CUDA's

installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# need PACKAGE...: installs those that are missing.
need() {
  command -v dpkg-query >/dev/null || die "this is neither Debian nor Ubuntu; install what corresponds to: $*"
  local missing=() as_root=() package
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "neither root nor sudo; as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  echo "Installing missing packages${as_root:+ with sudo}: ${missing[*]}"
  ${as_root[@]+"${as_root[@]}"} apt-get update -qq || die "apt-get update failed"
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# want PACKAGE...: installs those that can be had. Tests that use them are skipped where they are not there.
want() {
  local package
  for package in "$@"; do
    installed "$package" || ! apt-cache show "$package" >/dev/null 2>&1 || (need "$package") || true
  done
}

# As want, for Slurm, whose daemons the tests start themselves: what systemd starts at the installation is ended.
want_slurm() {
  local services=() as_root=() service
  for service in munge slurmctld slurmd; do
    installed "$service" || services+=("$service")
  done
  ((${#services[@]})) || return 0
  ((EUID == 0)) || as_root=(sudo)
  want "${services[@]}"
  [[ ! -d /run/systemd/system ]] ||
    ${as_root[@]+"${as_root[@]}"} systemctl --quiet disable --now "${services[@]}" 2>/dev/null || true
}

# The sanitizer and fuzzer libraries come in a package of the compiler's version.
need_clang_runtime() { need "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"; }
