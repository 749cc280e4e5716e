#!/usr/bin/env bash
# Installed pages and examples are of use by themselves: every link leads somewhere, each example is built
# by the line in its head, and so are the README's program and the one of the page about embedding; they find
# the libraries, and run.
# usage: test_installed_docs.sh SOURCE_DIR BUILD_DIR     NXD_PREFIX: the installed tree
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
: "${NXD_PREFIX:?names the installed tree}"
need_commands cc:gcc pkg-config
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# As on a machine whose loader does not look there.
unset LD_LIBRARY_PATH

mapfile -t pages < <(find "$NXD_PREFIX/share" -name '*.md')
"$source/tests/scripts/check_links.sh" "$NXD_PREFIX" "${pages[@]}"
for language in go rust/nxd julia/NXD python; do
  compgen -G "$NXD_PREFIX/share/nxd/$language/examples/*" > /dev/null || { echo "no examples of $language"; exit 1; }
done

documents=$(find "$NXD_PREFIX/share/doc" -maxdepth 1 -name 'nxd*')
cp "$documents"/examples/c/* "$work"
# in_page FILE: the program that a page has.
in_page() {
  awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1"
}
in_page "$documents/README.md" > "$work/tune.c"
in_page "$documents/docs/embedding.md" > "$work/mlp.c"
cd "$work"

# build PROGRAM COMMAND: as a reader would, and what it needs is found.
build() {
  [[ -n $2 ]] || { echo "$1 does not say how to build it"; exit 1; }
  bash -ec "$2" > log 2>&1 || { echo "$2"; cat log; exit 1; }
  if ldd "$1" | grep "not found"; then echo "$1 does not find its libraries: $2"; exit 1; fi
  built+=("$1")
}
built=()
engine=1
pkg-config --exists nxd || engine=0
for file in *.c; do
  grep -q '^int main' "$file" || continue
  program=${file%.c}
  if [[ $program == tune ]]; then
    line=$(grep -E '^    cc tune\.c ' "$documents/README.md" | sed 's/^ *//' || true)
  elif [[ $program == mlp ]]; then
    line=$(sed -nE '/^    cc mlp\.c /,/[^\\]$/p' "$documents/docs/embedding.md")
  else
    # A line that ends with a backslash goes on in the next.
    line=$(sed -nE '/^ \*   cc /,/[^\\]$/p' "$file" | sed -E 's/^ \* *//; s| *\*/$||')
  fi
  [[ $engine == 1 || $line == *nxd-core* ]] || continue
  build "$program" "$line"
done
((${#built[@]} >= 2)) || { echo "found only ${#built[@]} examples"; exit 1; }
NXD_CPU_MODE=1 OMP_NUM_THREADS=1 timeout 300 ./embed_zero1 > log 2>&1 || { cat log; exit 1; }
grep -q "loss" log || { cat log; exit 1; }
loads_no_libtorch embed_zero1
NXD_CPU_MODE=1 OMP_NUM_THREADS=1 timeout 300 "$NXD_PREFIX/bin/nxdrun" -n 2 ./mlp > log 2>&1 || { cat log; exit 1; }
sed -nE 's/^.*step [0-9]+ loss ([0-9.]+).*$/\1/p' log |
  awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 20 && last < 0.5 * first) }' || { cat log; exit 1; }
echo "built by their own lines: ${built[*]}"
