#!/usr/bin/env bash
# The README's example compiles, and trains the oracle's Llama on two ranks: its loss falls. The
# links of all pages lead somewhere.
# usage: test_readme.sh SOURCE_DIR BUILD_DIR     77: this build has no libnxd.so to run it with
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$source"
mapfile -t pages < <(find ./*.md docs bindings examples tests -name '*.md' -not -path '*/target/*')
"$source/tests/scripts/check_links.sh" . "${pages[@]}"

awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$source/README.md" > "$work/tune.c"
[[ -s $work/tune.c ]] || { echo "README.md has no example"; exit 1; }
gcc -std=c99 -Wall -Wextra -Werror -I"$source/include" -c "$work/tune.c" -o "$work/tune.o"
need_built "$build/src/libnxd.so"
gcc "$work/tune.o" -o "$work/tune" -L"$build/src" -lnxd -lnxd_core -Wl,-rpath,"$build/src"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
RANK=1 LOCAL_RANK=1 timeout 300 "$work/tune" "$source/tests/oracles/llama_tiny" > "$work/rank1" 2>&1 &
other=$!
RANK=0 LOCAL_RANK=0 timeout 300 "$work/tune" "$source/tests/oracles/llama_tiny" > "$work/rank0" 2>&1 ||
  { cat "$work/rank0" "$work/rank1"; kill $other 2>/dev/null || true; wait $other || true; exit 1; }
wait $other || { cat "$work/rank1"; exit 1; }
cat "$work/rank0"
awk '/^step/ { lines++; if (lines == 1) first = $4; last = $4 }
     END { exit !(lines == 10 && last < 0.9 * first) }' "$work/rank0" || { echo "the loss did not fall"; exit 1; }
