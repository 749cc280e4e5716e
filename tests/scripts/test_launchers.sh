#!/usr/bin/env bash
# The same program under a launcher: all ranks meet with no address given, all collectives are right, a
# sharded MLP equals the whole one, and nothing is left behind.
# usage: test_launchers.sh SOURCE_DIR BUILD_DIR nxdrun|mpich|openmpi|torchrun|slurm
#        slurm: srun and sbatch in a private cluster     77: the launcher is not installed
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2 part=$3
need_built "$build/tests/collectives"
mlp=$build/examples/c/mlp_tensor_parallel
need_built "$mlp"
# With a /dev/shm of its own, where this user may make one, other programs' segments do not matter.
own_shm=(unshare --mount sh -c 'mount -t tmpfs none /dev/shm && exec "$@"' sh)
if [[ -z ${NXD_TEST_OWN_SHM-} ]] && "${own_shm[@]}" true 2> /dev/null; then
  NXD_TEST_OWN_SHM=1 exec "${own_shm[@]}" "$0" "$@"
fi
work=$(mktemp -d)
others=()
clean_up() {
  ((${#others[@]} == 0)) || kill -KILL "${others[@]}" 2> /dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
mkdir "$work/tmp"
# A copy, so that its processes can be told from those of others.
program=$work/collectives
cp "$build/tests/collectives" "$program"
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=120000 TMPDIR=$work/tmp PYTHONDONTWRITEBYTECODE=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
ran=()
secret="a secret of the test's own"

fail() {
  echo "FAILED: $*"
  cat "$work/out"
  exit 1
}
# expect RANKS NAME COMMAND...: each rank reports itself once, with its rank on this host.
expect() {
  local ranks=$1 name=$2
  shift 2
  timeout 300 "$@" > "$work/out" 2>&1 < /dev/null || fail "$name: exit code $?"
  for ((i = 0; i < ranks; ++i)); do
    [[ $(grep -cE "rank $i of $ranks, local rank $i: ok" "$work/out") == 1 ]] || fail "$name: rank $i"
  done
  ran+=("$name")
}
expect_mlp() {
  local name=$1
  shift
  timeout 300 "$@" "$mlp" > "$work/out" 2>&1 < /dev/null || fail "$name: the MLP: exit code $?"
  [[ $(grep -c "Output sum is" "$work/out") == 1 ]] || fail "$name: the MLP"
  ran+=("$name, MLP")
}
run_with() {
  local ranks=$1 name=$2
  shift 2
  expect "$ranks" "$name" "$@" "$program"
}
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# This part runs inside of the private cluster.
if [[ $part == inside-slurm ]]; then
  for plugin in none pmi2 pmix; do
    # One that is listed may lack the library it is for.
    if ! why=$(srun --mpi=$plugin true 2>&1); then
      grep -q "load specified plugin\|Invalid MPI type" <<< "$why" || { echo "$why"; exit 1; }
      skip_part "launchers slurm: srun --mpi=$plugin" "the plugin does not load" "install what Slurm wants for it"
      continue
    fi
    run_with 3 "srun --mpi=$plugin" srun --mpi=$plugin -n 3
    # Its tasks inherit the variables of the shell, a world of one.
    run_with 2 "srun in srun --mpi=$plugin" \
      srun --mpi=$plugin -n 1 srun --mpi=none --overlap --overcommit -n 2
  done
  expect_mlp srun srun -n 2
  # A batch script is one process, whatever its variables say.
  printf '#!/bin/sh\n%s\n' "$program" > "$work/batch"
  expect 1 "sbatch's script" sh -c 'sbatch -Q -W -n 2 -o "$0.out" "$0" && cat "$0.out"' "$work/batch"
  echo "ran: $(IFS=';'; echo "${ran[*]}")"
  exit 0
fi

# A program that cannot be started is no rank that fails: the message has its name and the reason.
expect_no_start() {
  local status=0
  timeout 300 "$build/tools/nxdrun" -n 2 "$1" > "$work/out" 2>&1 < /dev/null || status=$?
  [[ $status == 127 && $(< "$work/out") == "nxdrun: cannot execute \"$1\": $2" ]] ||
    fail "nxdrun $1: exit code $status"
}
# A signal to a rank whose program is about to begin is the rank's, and not one of nxdrun's own handlers'.
expect_early_signal() {
  cat > "$work/early.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  int (*const next)(const char*, char* const[], char* const[]) =
      (int (*)(const char*, char* const[], char* const[]))dlsym(RTLD_NEXT, "execvpe");
  kill(getpid(), SIGTERM);
  return next(file, arguments, environment);
}
END
  cc -shared -fPIC "$work/early.c" -o "$work/early.so" -ldl
  local status=0
  LD_PRELOAD=$work/early.so timeout 300 "$build/tools/nxdrun" -n 2 true > "$work/out" 2>&1 < /dev/null || status=$?
  [[ $status == 143 ]] && grep -q "rank 0 of 2 was ended by signal 15" "$work/out" ||
    fail "a signal before a rank's program: exit code $status"
}
# A Ctrl-C before any rank runs: the terminal signals none of them.
expect_early_interrupt() {
  cat > "$work/late.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  int (*const next)(const char*, char* const[], char* const[]) =
      (int (*)(const char*, char* const[], char* const[]))dlsym(RTLD_NEXT, "execvpe");
  for (char* const* entry = environment; *entry; ++entry) {
    if (strcmp(*entry, "RANK=0") != 0) continue;
    int taken = 0;
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    if (write(1, "starting", 8) == 8) sigwait(&interrupt, &taken);
    sigprocmask(SIG_SETMASK, &before, NULL);
  }
  return next(file, arguments, environment);
}
END
  cc -shared -fPIC "$work/late.c" -o "$work/late.so" -ldl
  local status=0
  timeout 300 python3 - "$work/late.so" "$build/tools/nxdrun" > "$work/out" 2>&1 << 'END' || status=$?
import os, pty, signal, sys
process, terminal = pty.fork()
if process == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["LD_PRELOAD"] = sys.argv[1]
    os.execv(sys.argv[2], ["nxdrun", "--grace", "5", "-n", "2", "sleep", "600"])
said = b""
while b"starting" not in said: said += os.read(terminal, 4096)
os.write(terminal, b"\x03")
try:
    while part := os.read(terminal, 4096): said += part
except OSError: pass  # nobody has the terminal open any more
print(said.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
END
  [[ $status == 130 ]] && grep -q "was ended by signal 2" "$work/out" ||
    fail "Ctrl-C while ranks are being started: exit code $status"
}
try_nxdrun() {
  expect_no_start "$work/no-program" "No such file or directory"
  expect_no_start "$work" "Permission denied"
  expect_early_signal
  expect_early_interrupt
  expect 1 "no launcher" "$program"
  run_with 3 nxdrun "$build/tools/nxdrun" -n 3
  expect_mlp nxdrun "$build/tools/nxdrun" -n 2
  try_after_a_crash
}
try_mpich() {
  need_commands mpirun.mpich:mpich
  run_with 3 "mpirun.mpich" mpirun.mpich -n 3
  # Shells between the launcher and the ranks, and two worlds one after the other.
  run_with 2 "mpirun.mpich, wrapped" mpirun.mpich -n 2 sh -c '"$0" > /dev/null && sh -c "$0; true"'
  # The inner launcher has the variables of a rank 0 itself.
  run_with 2 "mpirun.mpich in mpirun.mpich" mpirun.mpich -n 1 mpirun.mpich -n 2
  MASTER_PORT=$(free_port) run_with 2 "mpirun.mpich, MASTER_PORT" mpirun.mpich -n 2
  MASTER_PORT=$(free_port) run_with 2 "mpirun.mpich, secret" \
    env NXD_SECRET="$secret" NXD_TRANSPORT=gloo mpirun.mpich -n 2
  expect_mlp mpirun.mpich mpirun.mpich -n 2
}
try_openmpi() {
  need_commands mpirun.openmpi:openmpi-bin
  local openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)
  run_with 3 "mpirun.openmpi" "${openmpi[@]}" -n 3
  MASTER_PORT=$(free_port) run_with 2 "mpirun.openmpi, MASTER_PORT" "${openmpi[@]}" -n 2
  expect_mlp mpirun.openmpi "${openmpi[@]}" -n 2
}
# Debian's torchrun fails on its own defaults of -r and -t; a rank that does not exist stands in.
try_torchrun() {
  need_commands torchrun:python3-torch
  torchrun --help > "$work/out" 2>&1 || fail "torchrun does not start"
  export USE_LIBUV=0  # Debian 13's torch is built without it, and would ask for it
  local torchrun=(torchrun -r 9:1 -t 9:1 --nproc_per_node 2 --master_port "$(free_port)" --no_python)
  run_with 2 torchrun "${torchrun[@]}"
  # Its store knows no secret; the ranks prove theirs to each other.
  run_with 2 "torchrun, secret" env NXD_SECRET="$secret" NXD_TRANSPORT=gloo "${torchrun[@]}"
  expect_mlp torchrun "${torchrun[@]}"
}

# A job that is killed leaves nothing that misleads the next one with its name.
try_after_a_crash() {
  local step=(env SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1)
  for i in 0 1; do
    "${step[@]}" SLURM_PROCID=$i "$program" lose > "$work/lose$i" 2>&1 &
    others+=($!)
  done
  for _ in {1..6000}; do
    grep -q runs "$work/lose0" && grep -q runs "$work/lose1" && break
    sleep 0.05
  done
  grep -q runs "$work/lose1" || { cat "$work"/lose*; exit 1; }
  kill -KILL "${others[@]}"
  wait "${others[@]}" 2> /dev/null || true
  others=()
  run_with 2 "after a crash" "${step[@]}" \
    sh -c 'SLURM_PROCID=1 "$1" & SLURM_PROCID=0 "$1" && wait $!' both
}
try_slurm() {
  local code=0
  "$source/tests/scripts/with_slurm.sh" "$0" "$source" "$build" inside-slurm > "$work/out" 2>&1 || code=$?
  cat "$work/out"
  ((code != 77)) || skip "$(tail -n 1 "$work/out")" "install slurmd slurmctld slurm-client munge, and run it as root with cgroups"
  ((code == 0)) || exit 1
}
case $part in
  nxdrun | mpich | openmpi | torchrun | slurm) "try_$part" ;;
  *) echo "no launcher $part"; exit 1 ;;
esac

# Launchers may need a moment to end.
left_over() {
  pgrep -af "$work/collectives" || true
  [[ -z ${NXD_TEST_OWN_SHM-} ]] || ls /dev/shm
}
for _ in {1..3000}; do
  [[ -z $(left_over) ]] && break
  sleep 0.1
done
[[ -z $(left_over) ]] || { left_over; echo "FAILED: processes or segments are left behind"; exit 1; }
[[ -z $(find "$work/tmp" -type f) ]] || { find "$work/tmp"; echo "FAILED: files are left behind"; exit 1; }
echo "ran: $(IFS=';'; echo "${ran[*]-}")"
