# shellcheck shell=bash
# The common part of script tests, which source it:  . "$(dirname "$0")/lib.sh"

# Numbers with a point: awk and printf of bash read and write the user's decimal mark.
export LC_ALL=C.UTF-8

# Go's standard library is compiled once for all tests of all clones: its cache goes by content.
export GOCACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/nxd/go

# cache_go_packages: those of the binding are compiled once for all clones, too. The cache's key must then
# have no directory of a clone, and the headers, which Go leaves out of it.
cache_go_packages() {
  PKG_CONFIG_SYSTEM_INCLUDE_PATH=$(pkg-config --variable=includedir nxd-core)
  PKG_CONFIG_SYSTEM_LIBRARY_PATH=$(pkg-config --variable=libdir nxd-core)
  export PKG_CONFIG_SYSTEM_INCLUDE_PATH PKG_CONFIG_SYSTEM_LIBRARY_PATH
  export C_INCLUDE_PATH=$PKG_CONFIG_SYSTEM_INCLUDE_PATH LIBRARY_PATH=$PKG_CONFIG_SYSTEM_LIBRARY_PATH
  CGO_CFLAGS="-O2 -g -DNXD_HEADERS=$(cd "$C_INCLUDE_PATH" && cat nxd.h nxd/*.h | cksum | cut -d' ' -f1)"
  export CGO_CFLAGS GOFLAGS="$GOFLAGS -trimpath"
}

# skip_part WHAT WHY REMEDY: says that a part of a test is left out, in a line that scripts/test lists.
# REMEDY: "install PACKAGE", or what else would let it run.
skip_part() {
  echo "skip: $1: $2; $3"
}

# skip WHY REMEDY: leaves out all (the rest) of this test, which ctest counts as skipped.
skip() {
  local name
  name=$(basename "$0" .sh)
  skip_part "${name#test_}${part:+ $part}" "$@"
  exit 77
}

# need_commands COMMAND[:PACKAGE]...: PACKAGE where it has another name.
need_commands() {
  local entry
  for entry in "$@"; do
    command -v "${entry%%:*}" > /dev/null || skip "${entry%%:*} is missing" "install ${entry#*:}"
  done
}

# need_python MODULE...: of Debian's Python.
need_python() {
  [[ -x /usr/bin/python3 ]] || skip "python3 is missing" "install python3"
  local module
  for module in "$@"; do
    /usr/bin/python3 -c "import $module" 2> /dev/null || skip "python3-$module is missing" "install python3-$module"
  done
}

# framework_python NAME: a Python that has what examples/NAME needs.
framework_python() {
  local root python
  root=$(dirname "${BASH_SOURCE[0]}")/../..
  if python=$("$root/scripts/framework" "$1" 2> /dev/null); then
    echo "$python"
    return
  fi
  # The caller takes what is printed for a path: to the test's own output, then.
  skip "$1 of examples/$1/requirements.txt is not here and cannot be fetched" \
    "let pip reach an index of packages, and install python3-venv" >&2
}

# need_built FILE: of the build directory, which a build without the engine may lack.
need_built() {
  [[ -e $1 ]] || skip "this build has no $(basename "$1")" "build it with scripts/build"
}

# loads_no_libtorch PROGRAM: fails where it does. A mere "! ldd ... | grep" would never end a script.
loads_no_libtorch() {
  local libraries
  libraries=$(ldd "$1") || { echo "ldd cannot read $1: $libraries"; return 1; }
  if grep -Ei "libtorch|libc10" <<< "$libraries"; then
    echo "$1 loads libtorch"
    return 1
  fi
}

# find_c_examples BUILD_DIR: the directory of the examples in C, those of the build or the installed ones.
find_c_examples() {
  local directory
  for directory in "$1/examples/c" "${NXD_PREFIX:-/nowhere}/examples"; do
    [[ ! -x $directory/train_lm ]] || { echo "$directory"; return; }
  done
}

# Starts a program as the two ranks of a job of mpirun's, which tells them so by its variables alone.
as_mpirun=(env -u RANK -u WORLD_SIZE OMPI_COMM_WORLD_SIZE=2 "OMPI_MCA_orte_hnp_uri=test $$" PMIX_NAMESPACE=1
  sh -c 'OMPI_COMM_WORLD_RANK=1 "$@" & OMPI_COMM_WORLD_RANK=0 "$@" && wait $!' ranks)

# losses FILE COMMAND...: runs a command and keeps the numbers of its lines with a loss in FILE, and all
# lines in FILE.log. A launcher may put a rank's name in front of them.
losses() {
  local out=$1
  shift
  timeout 300 "$@" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
  sed -nE 's/^.*(step|epoch) [0-9]+ loss ([0-9.]+).*$/\2/p' "$out.log" > "$out"
}

# rejects_options OPTIONS...: $program says its usage, with status 2. Its output is in $work/log.
rejects_options() {
  local status=0
  timeout 300 "$program" "$@" > "$work/log" 2>&1 || status=$?
  if [[ $status != 2 ]] || ! grep -q "^usage: ${program##*/}" "$work/log"; then
    echo "$*: expected status 2 and the usage, got $status and:"
    cat "$work/log"
    exit 1
  fi
}

# rejects_ranks TP COMMAND...: a command that starts three ranks ends with an error, as they divide neither the
# 32 hidden units of the examples with frameworks (TP: 3), nor their 64 samples (TP: 1).
rejects_ranks() {
  local what="64 samples do not divide by 3 data-parallel ranks" said
  [[ $1 == 1 ]] || what="32 hidden units do not divide by 3 tensor-parallel ranks"
  shift
  if said=$(timeout 300 "$@" 2>&1); then
    printf '%s\n' "$said" "$*: it ran on three ranks"
    exit 1
  fi
  grep -q "$what" <<< "$said" || { printf '%s\n' "$said" "$*: expected: $what"; exit 1; }
}

# compare_losses TOLERANCE FILE...: fails unless they fall, and are those of the first file.
compare_losses() {
  python3 - "$@" <<'PY'
import sys
tolerance, files = float(sys.argv[1]), sys.argv[2:]
runs = [[float(line) for line in open(f)] for f in files]
first = runs[0]
if len(first) < 10 or not first[-1] < 0.8 * first[0]:
    sys.exit(f"{files[0]}: {len(first)} losses, {first[:1]} to {first[-1:]}")
for name, run in zip(files[1:], runs[1:]):
    if len(run) != len(first):
        sys.exit(f"{name}: expected {len(first)} losses, got {len(run)}")
    worst = max(abs(a - b) for a, b in zip(run, first))
    print(f"{name.split('/')[-1]}: {run[0]:.6f} to {run[-1]:.6f}, largest difference {worst:.2g}")
    if not worst <= tolerance:
        sys.exit("the losses depend on the number of ranks")
PY
}

# pjrt_plugin: prints the path of a PJRT plug-in, where one was named or fetched.
pjrt_plugin() {
  local plugin
  plugin=$("$(dirname "${BASH_SOURCE[0]}")/../../scripts/fetch_pjrt_cpu" --path)
  if [[ ! -s $plugin ]]; then
    skip_part "PJRT plug-in for the CPU" "there is no $plugin" "run scripts/fetch_pjrt_cpu" >&2
    return 1
  fi
  echo "$plugin"
}
