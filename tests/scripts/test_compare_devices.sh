#!/usr/bin/env bash
# A few steps of scripts/compare_devices, whose whole table docs/device.md has: a row for each layout,
# and losses that differ by no more than rounding. It fails where a device compiles or runs too much.
# usage: test_compare_devices.sh SOURCE_DIR BUILD_DIR     77: no engine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/tests/model_on_device"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NEURON_COMPILE_CACHE_URL=${XDG_CACHE_HOME:-${HOME:-$build}/.cache}/nxd/test_programs

# A program that trains nothing and says what PROGRAMS, EXECUTIONS, SYNCS and FALLBACKS say. Stages
# need as many programs as they have steps.
mkdir -p "$work/told/tests" "$work/told/tools"
cat > "$work/told/tests/model_on_device" <<'SH'
#!/usr/bin/env bash
for ((step = 0; step < $3; ++step)); do echo "step $step loss 5.0"; done
programs=$PROGRAMS executions=$((EXECUTIONS * $3))
[[ $2 != pipeline || $PROGRAMS != each ]] || programs=$3
for rank in 0 1; do
  echo "rank $rank: $3 steps, $executions executions, ${programs/each/1} programs, $SYNCS syncs, $FALLBACKS fallbacks"
done
SH
printf '#!/usr/bin/env bash\nshift 2\nexec "$@"\n' > "$work/told/tools/nxdrun"
chmod +x "$work/told"/*/*

# told EXPECTED PROGRAMS EXECUTIONS SYNCS FALLBACKS: the last line that the script prints.
told() {
  local expected=$1 last
  last=$(PROGRAMS=$2 EXECUTIONS=$3 SYNCS=$4 FALLBACKS=$5 \
    "$source/scripts/compare_devices" --build "$work/told" --steps 3 bert 2>&1 | tail -n 1) || true
  [[ $last == $expected ]] || { echo "expected $expected, got $last"; exit 1; }
}
told "| bert | DP 2, ZeRO-1 | * | 1 | 2 |" 2 1 0 0
told "compare_devices: bert, one rank: replay, rank 0: *'programs': 3,*" 3 1 0 0
told "compare_devices: bert, one rank: replay, rank 0: *'executions': 6,*" 2 2 0 0
told "compare_devices: bert, one rank: replay, rank 0: *'syncs': 1,*" 2 1 1 0
told "compare_devices: bert, one rank: replay, rank 0: *'fallbacks': 1}*" 2 1 0 1
told "compare_devices: bert, PP 2: replay, rank 0: *'programs': 3,*, and after 2 steps *'programs': 2,*" each 1 0 0

"$source/scripts/compare_devices" --build "$build" --steps 3 bert | tee "$work/table"
[[ $(grep -c '^| bert | ' "$work/table") == 4 ]]
if plugin=$(pjrt_plugin); then
  [[ $(grep -c '^| bert | .* | [0-9.]* | [0-9.]* | [0-9.]* | [0-9.]* | [0-9.e+-]* | [0-9and ]* | [0-9and ]* |$' "$work/table") == 4 ]]
fi
