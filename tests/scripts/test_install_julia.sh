#!/usr/bin/env bash
# scripts/install_julia puts a julia where it is told, also by a path that is relative and has a blank, which
# then runs from any directory; it leaves a directory with files of others as it is. Stand-ins for apt-get and dpkg-deb: nothing is fetched.
# usage: test_install_julia.sh SOURCE_DIR BUILD_DIR     77: no Debian on x86-64
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
[[ $(uname -m) == x86_64 && -e /usr/lib/x86_64-linux-gnu/libc.so.6 ]] || skip "this is no Debian on x86-64" "run it there"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/bin"
cat > "$work/bin/apt-get" << 'END'
#!/bin/sh
case " $* " in *" download "*) ;; *) exit 0 ;; esac
for word; do
  case $word in */bullseye) : > "${word%/bullseye}_1_amd64.deb" ;; esac
done
END
cat > "$work/bin/dpkg-deb" << 'END'
#!/bin/sh
set -e
[ "$1" = -x ] && [ -e "$2" ]
libraries=$3/usr/lib/x86_64-linux-gnu/julia
mkdir -p "$libraries" "$3/usr/bin"
for name in libpcre2-8 libssh2 libgmp libcurl; do ln -sf libc.so.6 "$libraries/$name.so"; done
printf '#!/bin/sh\necho "julia of $0: $*"\n' > "$3/usr/bin/julia"
chmod +x "$3/usr/bin/julia"
END
chmod +x "$work/bin"/*

cd "$work"
PATH=$work/bin:$PATH NXD_JULIA_CACHE=kept "$source/scripts/install_julia" "some where/julia" > out 2>&1 || { cat out; exit 1; }
cd /
[[ $("$work/some where/julia/bin/julia" -e x) == "julia of $work/some where/julia/root/usr/bin/julia: -e x" ]] ||
  { "$work/some where/julia/bin/julia" -e x; exit 1; }
# It is there, so that nothing is done again.
"$source/scripts/install_julia" "$work/some where/julia" | grep 'julia: --version$' > /dev/null
[[ $(ls -A "$work/some where") == julia ]] || { ls -A "$work/some where"; exit 1; }

# A directory of others is rejected before anything is fetched, and an empty one is taken.
mkdir "$work/theirs" "$work/empty"
echo kept > "$work/theirs/file"
for prefix in "$work/theirs" "$work/theirs/file"; do
  if PATH=$work/bin:$PATH NXD_JULIA_CACHE=$work/untouched "$source/scripts/install_julia" "$prefix" > "$work/out" 2>&1; then
    echo "install_julia takes $prefix"
    exit 1
  fi
  grep -q "^install_julia: expected a new or empty directory, got $prefix," "$work/out" || { cat "$work/out"; exit 1; }
done
[[ $(< "$work/theirs/file") == kept && ! -e $work/untouched ]] || { ls -A "$work" "$work/theirs"; exit 1; }
PATH=$work/bin:$PATH NXD_JULIA_CACHE=$work/kept "$source/scripts/install_julia" "$work/empty" > "$work/out" 2>&1 || { cat "$work/out"; exit 1; }
"$work/empty/bin/julia" --version > "$work/out"
