#!/usr/bin/env bash
# Scripts say why they end with status 2 where an option has no value, or a number or a word is none that they
# know, before they build, fetch or write anything.
# usage: test_script_options.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/empty"
for tool in apt-get clang++-14 cmake ctest doxygen; do printf '#!/bin/sh\necho ran >> "$0.ran"\nexit 3\n' > "$work/bin/$tool"; done
chmod +x "$work/bin"/*
export PATH=$work/bin:$PATH
cd "$work/empty"

# rejects MESSAGE [VARIABLE=VALUE]... SCRIPT [arguments]
rejects() {
  local message=$1 variables=() status=0
  shift
  while [[ $1 == *=* ]]; do variables+=("$1"); shift; done
  timeout 60 env "${variables[@]}" "$source/scripts/$1" "${@:2}" > "$work/out" 2>&1 < /dev/null || status=$?
  if [[ $status != 2 ]] || ! grep -qF -- "$message" "$work/out"; then
    echo "${variables[*]} $*: expected status 2 and \"$message\", got $status and:"
    cat "$work/out"
    exit 1
  fi
}
rejects "test_beside_load: --suite: expected one of tests asan tsan, got x" test_beside_load --suite x
rejects "test_beside_load: --rounds: expected a value" test_beside_load --rounds
rejects "--rounds: expected a number, 1 at least, got 0" test_beside_load --rounds 0
rejects "--busy: expected a number, 0 at least, got -1" test_beside_load --busy -1
for option in seconds runs jobs seed; do rejects "fuzz: --$option: expected a value" fuzz --$option; done
rejects "fuzz: --runs: expected a number, 1 at least, got 1e6" fuzz --runs 1e6
rejects "usage: scripts/fuzz" fuzz --second 1
rejects "compare_devices: --build: expected a value" compare_devices --build
rejects "--steps: expected a number, 1 at least, got -2" compare_devices --steps -2
rejects "usage: scripts/compare_devices" compare_devices --step 3
rejects "device_suites: --build: expected a value" device_suites --build
rejects "--backend: expected one of replay pjrt, got xla" device_suites --backend xla
rejects "ROUNDS: expected a number, 1 at least, got x" finalizations x
rejects "KILLS: expected a number, 1 at least, got 0" kill_saves "$build" 0
for script in check_{layers,layouts,loops,pipelines,tensors,torchscript,transformers}; do
  rejects "$script: NXD_CASES: expected a number, 1 at least, got 0" NXD_CASES=0 $script "$build"
done
rejects "FIRST_SEED: expected a number, 0 at least, got x" check_pipelines "$build" x
rejects "NXD_KINDS: expected one of scripted own, got other" NXD_KINDS="own other" check_pipelines "$build"
rejects "NXD_LANGUAGES: expected one of c rust go julia python, got cc" NXD_LANGUAGES=cc bench_bindings "$build"
rejects "NXD_PASSES: expected a number, 1 at least, got 0" NXD_PASSES=0 bench_bindings "$build"
# A path is what these take.
for script in install_julia package reference single_header; do rejects "usage: scripts/$script" $script --help; done
for script in bench_{checkpoints,collectives,devices,mlp_layers,peers}; do
  for passes in 0 x; do rejects "argument --passes: expected a number above 0, got $passes" $script --passes $passes; done
done
# A trace that is none is no picture.
: > "$work/no_text"
echo '[1]' > "$work/list"
echo '{"traceEvents": [{"ph": "X"}]}' > "$work/cut"
for trace in absent no_text list cut; do
  if "$source/scripts/draw_timeline" "$work/$trace" picture.svg > "$work/out" 2>&1; then echo "$trace is drawn"; exit 1; fi
  why="expected a trace of nxd_pp_write_timeline"
  [[ $trace != absent ]] || why="No such file or directory"
  [[ $(< "$work/out") == "draw_timeline: $work/$trace: $why" ]] || { cat "$work/out"; exit 1; }
done
[[ ! $(ls -A "$work/empty") && ! $(find "$work/bin" -name '*.ran') ]] || { ls -A "$work/empty" "$work/bin"; exit 1; }
echo "scripts: wrong options have a message"
