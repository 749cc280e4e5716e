#!/usr/bin/env bash
# A plain Go program trains over libnxd_core in a process without libtorch: tensor-parallel, data-parallel
# with ZeRO-1, and both have the losses of the program alone.
# usage: test_framework_go.sh SOURCE_DIR BUILD_DIR     77: no Go
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export PATH=/usr/bin:$PATH
need_commands go:golang-go gcc pkg-config
: "${NXD_PREFIX:?names the installed tree}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The installed example, whose recipe names the installed binding.
documents=$(find "$NXD_PREFIX/share/doc" -maxdepth 1 -name 'nxd*')
export GOPATH=$work/path GOFLAGS=-p=1 GOPROXY=off GOTOOLCHAIN=local GOENV=off
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
cache_go_packages
cd "$documents/examples/go"
unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || { echo "not as gofmt has it: $unformatted"; exit 1; }
go vet ./...
go build -o "$work/" ./...
loads_no_libtorch "$work/parallel"
losses "$work/run-alone" "$work/alone"
for layout in "1 1" "2 2" "2 1" "4 2"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "$NXD_PREFIX/bin/nxdrun" -n "$ranks" "$work/parallel" "$tp"
done
# As the page says it, in the directory that is installed.
sed -n 's/^    \(go\|nxdrun\) /\1 /p' README.md > "$work/page.sh"
[[ $(wc -l < "$work/page.sh") == 2 ]] || { cat "$work/page.sh"; exit 1; }
HOME=$work PATH=$NXD_PREFIX/bin:$PATH losses "$work/page" bash -e "$work/page.sh"
[[ -x $work/mlp_parallel ]] || { ls "$work"; exit 1; }
for tp in 1 3; do rejects_ranks $tp "$NXD_PREFIX/bin/nxdrun" -n 3 "$work/parallel" $tp; done
compare_losses 1e-5 "$work"/{run-alone,1-ranks-tp1,2-ranks-tp2,2-ranks-tp1,4-ranks-tp2,page}
