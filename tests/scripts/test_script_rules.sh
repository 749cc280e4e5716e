#!/usr/bin/env bash
# Script tests rely on these: a skip is named and counted, a program that loads libtorch is found, and no
# script has a check that cannot fail.
# usage: test_script_rules.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/test_absent.sh" << 'END'
set -euo pipefail
. "$1"
part=$2
need_commands sh no-such-command:no-such-package
END
code=0
bash "$work/test_absent.sh" "$source/tests/scripts/lib.sh" left > "$work/out" || code=$?
[[ $code == 77 && $(< "$work/out") == "skip: absent left: no-such-command is missing; install no-such-package" ]] ||
  { echo "a skip ends with $code and says:"; cat "$work/out"; exit 1; }

# Where no cache can be written to, the plug-in cannot be had, which is a skip.
code=0
env -u NXD_PJRT_PLUGIN XDG_CACHE_HOME=/dev/null "$source/scripts/fetch_pjrt_cpu" > "$work/out" 2>&1 || code=$?
[[ $code == 77 ]] && grep -q '^skip: PJRT plug-in for the CPU: .*/dev/null/nxd' "$work/out" ||
  { echo "fetch_pjrt_cpu ends with $code and says:"; cat "$work/out"; exit 1; }

# With set -e, as in a test.
checks() { bash -ec '. "$0"; loads_no_libtorch "$1"; echo good' "$source/tests/scripts/lib.sh" "$1"; }
[[ $(checks "$build/src/libnxd_core.so") == good ]] || { echo "libnxd_core is said to load libtorch"; exit 1; }
if [[ -e $build/src/libnxd.so ]] && checks "$build/src/libnxd.so" > "$work/out"; then
  echo "libtorch is not found in libnxd.so"
  exit 1
fi
if checks "$work/out" 2> /dev/null > /dev/null; then echo "a file that is no program passes"; exit 1; fi

# The build directory is the tree's, from wherever a script is called.
mkdir -p "$work/tree"/{scripts,build/bench}
cp "$source"/scripts/{bench,kill_saves,options.sh} "$work/tree/scripts/"
printf '#!/bin/sh\necho measured\n' > "$work/tree/build/bench/bench_step"
chmod +x "$work/tree/build/bench/bench_step"
[[ $(cd / && "$work/tree/scripts/bench" | grep -c measured) == 4 ]] || { echo "scripts/bench measures something else"; exit 1; }
if (cd / && "$work/tree/scripts/kill_saves") 2> "$work/out"; then echo "kill_saves runs without a program"; exit 1; fi
grep -q "^$work/tree/build/examples/c/train_lm is missing" "$work/out" || { cat "$work/out"; exit 1; }

# The demo takes a build that has its program, and otherwise makes one of its own.
cp "$source/scripts/demo" "$work/tree/scripts/"
printf '#!/bin/sh\n' > "$work/tree/scripts/deps"
printf '#!/bin/sh\nbasename "$1"\n' > "$work/tree/scripts/build"
chmod +x "$work/tree/scripts"/*
for line in "build src/libnxd_core.so: phony" "build examples/c/train_lm: link"; do
  echo "$line" > "$work/tree/build/build.ninja"
  "$work/tree/scripts/demo" -b
done > "$work/out"
[[ $(< "$work/out") == "build-demo"$'\n'"build" ]] || { echo "the demo builds in:"; cat "$work/out"; exit 1; }

# A script that is ended ends what it runs in the background, which a terminal's Ctrl-C does not reach.
mkdir -p "$work/tree"/{bin,build-fuzz/tests/fuzz,tests/fuzz/corpus,build/tests}
cp "$source"/scripts/{fuzz,finalizations} "$work/tree/scripts/"
printf '#!/bin/sh\n' | tee "$work/tree/bin/clang++-14" > "$work/tree/scripts/build"
printf '#!/bin/sh\necho $$ >> "$0.pids"\nexec sleep 1000\n' > "$work/tree/build/tests/finalizations"
cp "$work/tree/build/tests/finalizations" "$work/tree/build-fuzz/tests/fuzz/fuzz_api_core"
chmod +x "$work/tree"/{bin,scripts,build-fuzz/tests/fuzz}/* "$work/tree/build/tests/finalizations"
# ends_all PROGRAM PROCESSES COMMAND...: once so many of the program's processes run.
ends_all() {
  local pids=$work/tree/$1.pids script process
  PATH=$work/tree/bin:$PATH "${@:3}" > "$work/out" 2>&1 &
  script=$!
  for _ in {1..6000}; do
    [[ ! -e $pids ]] || (($(wc -l < "$pids") < $2)) || break
    sleep 0.01
  done
  kill "$script" 2> /dev/null || true
  wait "$script" 2> /dev/null || true
  [[ -e $pids ]] || { echo "$3 runs nothing:"; cat "$work/out"; exit 1; }
  for process in $(< "$pids"); do
    for _ in {1..1000}; do
      kill -0 "$process" 2> /dev/null || continue 2
      sleep 0.01
    done
    kill -KILL $(< "$pids") 2> /dev/null || true
    echo "$3 leaves processes behind"
    exit 1
  done
}
ends_all build-fuzz/tests/fuzz/fuzz_api_core 1 "$work/tree/scripts/fuzz" api_core
ends_all build/tests/finalizations 4 "$work/tree/scripts/finalizations" 1 addresses

# Numbers have a point in tests, whatever the user's language.
if localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then
  half=$(LOCPATH=$work LC_ALL=de_DE.UTF-8 bash -ec '. "$0"; echo 0.5 | awk "{ print \$1 * 3 }"' "$source/tests/scripts/lib.sh")
  [[ $half == 1.5 ]] || { echo "three halves are $half in a test"; exit 1; }
else
  skip_part "script_rules by another decimal mark" "the locale de_DE cannot be made" "install locales"
fi

# "! command" alone never ends a script with set -e, unless it is the last one.
cd "$source"
mapfile -t scripts < <(grep -rlE '^#!.*\b(ba)?sh' scripts tests/scripts tests/consumers bench tools examples bindings \
  --exclude-dir=target --exclude-dir=node_modules)
((${#scripts[@]} > 30)) || { echo "found only ${#scripts[@]} scripts"; exit 1; }
if grep -nE '^[[:space:]]*! ' "${scripts[@]}" | grep -v '||'; then
  echo "these never fail: write  if COMMAND; then echo WHY; exit 1; fi"
  exit 1
fi
# A reader that ends early ends the writer by SIGPIPE, which pipefail takes for a failure, now and then.
if grep -nE '\|[[:space:]]*(grep -[a-zA-Z]*q|head)\b' "${scripts[@]}" | grep -v 'test_script_rules\.sh:'; then
  echo "these fail now and then: write  | grep WORD > /dev/null  or  | sed -n 1p"
  exit 1
fi
# xargs takes a path with a blank for two.
if grep -nE '\bxargs ' "${scripts[@]}" | grep -vE "xargs -(0|d)|test_script_rules\.sh:"; then
  echo "these fail where a directory's name has a blank: write  xargs -0  or  xargs -d '\n'"
  exit 1
fi
# A skip says what to install.
if grep -nE 'exit 77' tests/scripts/*.sh | grep -vE '^tests/scripts/(lib|with_slurm|test_script_rules|test_test_summary)\.sh'; then
  echo "these skip without a name: use skip of tests/scripts/lib.sh"
  exit 1
fi
if grep -rniE '["'"'"'][^"'"'"']*skipped: ' tests --include=*.c --include=*.cpp --include=*.h; then
  echo "these are in no list of skips: print  skip: WHAT: WHY; REMEDY"
  exit 1
fi
if grep -rnE 'SkipTest\(|skipTest\(|skipIf|skipUnless' bindings/python/tests | grep -v '/support\.py:'; then
  echo "these skip in silence: use skip or skip_here of support.py"
  exit 1
fi
