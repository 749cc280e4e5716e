#!/usr/bin/env bash
# tests/oracles/README.md names every directory and file of the oracles, and nothing that is not
# there; and a test reads each of them.
# usage: test_oracles.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
oracles=$1/tests/oracles
readme=$oracles/README.md

# Names that the README puts between backquotes, with {a,b} written out.
declare -A named=()
while read -r word; do
  [[ $word =~ ^[A-Za-z0-9][A-Za-z0-9_.,{}/]*$ ]] || continue
  for name in $(eval "echo $word"); do named[${name%/}]=1; done
done < <(grep -oE '`[^`]+`' "$readme" | tr -d '`' | sed 's/\[.*//')

wrong=0
complain() { echo "$*" >&2; wrong=1; }

# Directories by their path below nxd/, files of JSON in nxd/ itself, and what the others contain.
mapfile -t there < <(cd "$oracles" && {
  find . -mindepth 1 -maxdepth 1 -not -name README.md -printf '%P\n'
  find nxd -mindepth 1 -maxdepth 1 -printf '%f\n'
  find . -mindepth 2 -maxdepth 2 -not -path './nxd/*' -type f -printf '%f\n'
} | sort -u)
for name in "${there[@]}"; do
  [[ ${named[$name]:-} ]] || complain "README.md does not name $name"
  unset "named[$name]"
done
for name in "${!named[@]}"; do
  case $name in
    *.npy | *.json | *.py | *.safetensors | */*)
      [[ -e $1/$name ]] || find "$oracles" -name "${name##*/}" | grep . > /dev/null || complain "README.md names $name, which is not there" ;;
    *_* | nxd*)
      [[ $name == loss_traj ]] || complain "README.md names $name, which is not there" ;;
  esac
done

# Readers put some names together from parts, so the fixed part of each is looked for.
for name in "${there[@]}"; do
  case $name in *.py | *.json | *.npy | *.safetensors) [[ -e $oracles/nxd/$name ]] || continue ;; esac
  part=$(sed -E 's/(_bias[01]_sp[01]|_across[01]|_stride2|0\.[01])$//; s/^map_//' <<< "$name")
  grep -rqF --include='*.cpp' --include='*.c' --include='*.h' --include='*.sh' -- "$part" "$1/tests" ||
    complain "no test reads $name"
done
exit "$wrong"
