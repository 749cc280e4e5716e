#!/usr/bin/env bash
# The Go binding: its tests, also with cgo's checks and forced collections; its examples and programs
# against those in C; the README's program; a library of another ABI. NXD_LONG=1 adds the race detector, more
# repetitions, and the same under another Go, if NXD_GO names one.
# usage: test_bindings_go.sh SOURCE_DIR BUILD_DIR     77: Go or a compiler is missing
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/programs.sh"
source=$1 build=$2
export PATH=/usr/bin:$PATH
need_commands go:golang-go gcc pkg-config
: "${NXD_PREFIX:?an installed tree}"
pkg-config --exists nxd || skip "libnxd is missing from the installed tree" "build it with the engine"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOPATH=$work/path GOFLAGS=-p=1 GOPROXY=off GOTOOLCHAIN=local GOENV=off
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=120000
cache_go_packages
limit=3000
cd "$source/bindings/go"

unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || { echo "not as gofmt has it: $unformatted"; exit 1; }
# vet's check of arguments to C reads the sources that a cached package names: those of the clone that
# compiled it, which may be gone.
go vet -cgocall=false ./...
checked=(env GODEBUG=cgocheck=2)
[[ $(go env GOVERSION) =~ ^go1\.(19|20)(\.|$) ]] || checked=(env GOEXPERIMENT=cgocheck2)
timeout $limit "${checked[@]}" go test -timeout ${limit}s -count=1 ./...
timeout $limit go test -timeout ${limit}s -count=1 -short -exec 'env GOGC=1' ./...

go build -o "$work/" ./examples/... ./bench
loads_no_libtorch "$work/zero1"

# run NAME COMMAND...: its output, in $work/NAME.
run() {
  local out=$work/$1.out
  shift
  timeout 300 "$@" > "$out" 2>&1 || { echo "$*"; cat "$out"; exit 1; }
}

# losses FILE: the lines with a loss, without what a launcher puts before them.
losses() { sed -nE 's/^.*((step|epoch) [0-9]+ loss .*)$/\1/p' "$1"; }

nxdrun=$NXD_PREFIX/bin/nxdrun
c=$(find_c_examples "$build")
[[ -n $c ]] || skip_part "go against the examples in C" "there are none" "build them with scripts/build"
run mlp "$nxdrun" -n 2 "$work/mlp"
grep -q "largest difference to the unsplit MLP" "$work/mlp.out"
run module "$nxdrun" -n 2 "$work/module"
losses "$work/module.out" | awk 'NR == 1 { first = $4 } { last = $4 }
  END { exit !(NR == 10 && last < 0.5 * first) }' || { echo "module: the loss did not fall"; exit 1; }
run peerlost "$work/peerlost"
grep -q "^INVALID_ARGUMENT: .*ranks disagree" "$work/peerlost.out"
grep -q "^rank 1 was lost during all_reduce of world" "$work/peerlost.out"
run zero1.one "$work/zero1"
run zero1 "$nxdrun" -n 2 "$work/zero1"
cmp <(losses "$work/zero1.one.out") <(losses "$work/zero1.out")
# same_numbers FILE FILE: 40 lines of as many words, numbers up to 1e-5.
same_numbers() {
  paste -d' ' <(losses "$1") <(losses "$2") | awk '{
      for (i = 1; i <= NF / 2; ++i) {
        a = $i; b = $(i + NF / 2)
        if (a + 0 == 0 && b + 0 == 0 ? a != b : (a - b) ^ 2 > 1e-10) { print; bad = 1 }
      }
    } END { exit bad || NR != 40 }' || { echo "$1 and $2 differ"; exit 1; }
}
loads_no_libtorch "$work/tensorparallel"
run tensorparallel.one "$work/tensorparallel"
for layout in "2 2" "2 1" "4 2"; do
  run tensorparallel "$nxdrun" -n ${layout% *} "$work/tensorparallel" ${layout#* }
  same_numbers "$work/tensorparallel.one.out" "$work/tensorparallel.out"
done
for tp in 3 1; do
  if timeout 300 "$nxdrun" -n 3 "$work/tensorparallel" $tp > "$work/uneven.out" 2>&1; then
    echo "tensorparallel: 3 ranks divided the network or its samples"
    exit 1
  fi
  grep -q "32 units do not divide by $tp ranks, or 64 samples by $((3 / tp))" "$work/uneven.out" ||
    { cat "$work/uneven.out"; exit 1; }
done
run stages.one "$work/stages"
for schedule in 1f1b gpipe zero-bubble; do
  run stages "$nxdrun" -n 2 "$work/stages" $schedule
  cmp <(losses "$work/stages.one.out") <(losses "$work/stages.out")
done
program() { timeout 300 "$work/$1" "${@:2}"; }
[[ -z $c ]] || compare_programs "$source" "$build/programs_in_c" "$work"
lazy() { program lazy_mlp && program lazy_ddp; }
[[ -z $c ]] || compare_lazy_programs "$build/programs_in_c" "$work" 2 lazy
if [[ -x $c/embed_zero1 ]]; then
  run embed_zero1 "$nxdrun" -n 2 "$c/embed_zero1"
  cmp <(losses "$work/embed_zero1.out") <(losses "$work/zero1.out")
  run embed_tensor_parallel "$c/embed_tensor_parallel"
  sed -i 's/, norm.*//' "$work/tensorparallel.one.out"
  same_numbers "$work/embed_tensor_parallel.out" "$work/tensorparallel.one.out"
fi

# The README's program, in a module of its own.
mkdir "$work/readme"
awk '/^```go$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md > "$work/readme/main.go"
(cd "$work/readme" && go mod init example.org/readme 2> /dev/null &&
  ln -s "$source/bindings/go" nxd-go &&
  go mod edit -require=libnxd.org/nxd@v0.1.0 -replace=libnxd.org/nxd=./nxd-go && go build -o readme .)
run readme "$work/readme/readme"
grep -q "sums are \[3 20\]" "$work/readme.out" || { cat "$work/readme.out"; exit 1; }
run readme.mpirun "${as_mpirun[@]}" "$work/readme/readme"
grep -q "sums are \[3 20\]" "$work/readme.mpirun.out" || { cat "$work/readme.mpirun.out"; exit 1; }

# A library of another ABI is refused when the program starts.
echo 'unsigned nxd_abi_version(void) { return 99; }' > "$work/other.c"
gcc -shared -fPIC -o "$work/other.so" "$work/other.c"
LD_PRELOAD=$work/other.so "$work/zero1" > "$work/abi.out" 2>&1 && { echo "ABI 99 is accepted"; exit 1; }
grep -q "made for ABI 0, the loaded libnxd_core has ABI 99" "$work/abi.out" || { cat "$work/abi.out"; exit 1; }

run bench "$work/bench"
[[ $(awk '{ print $1 }' "$work/bench.out" | tr '\n' ' ') == "empty_call_ns all_reduce_1k_us " ]]

[[ ${NXD_LONG:-0} == 1 ]] || exit 0
GOFLAGS=-p=1 go vet -cgocall ./...
timeout $limit go test -timeout ${limit}s -count=1 -short -race ./...
if [[ -n ${NXD_GO:-} ]]; then
  timeout $limit env GOEXPERIMENT=cgocheck2 "$NXD_GO" test -timeout ${limit}s -count=1 ./...
fi
