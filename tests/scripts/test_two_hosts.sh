#!/usr/bin/env bash
# Four ranks on two hosts, which are network namespaces with names of their own.
# usage: test_two_hosts.sh SOURCE_DIR BUILD_DIR direct|mpirun|emulated
#        direct: over a direct link; mpirun: started across it
#        emulated: over a slow and lossy link, to a host that cannot be reached, and over a link that is
#        cut in the middle: every rank on both sides ends within twice its timeout, and names a rank of
#        the other side     77: no namespaces here, no mpirun, or no device for the emulated link
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2 part=$3
program=$build/tests/collectives
need_built "$program"
((EUID == 0)) || skip "network namespaces need root" "run it as root"
need_commands ip:iproute2 unshare:util-linux hostname
case $part in
  direct) ;;
  mpirun) need_commands mpirun.mpich:mpich ;;
  emulated) [[ -c /dev/net/tun ]] || skip "no /dev/net/tun" "load the module tun" ;;
  *) echo "no part $part"; exit 1 ;;
esac

left=nxd$$a right=nxd$$b
work=$(mktemp -d)
ranks=() relay=
clean_up() {
  # Each rank is behind a timeout, which passes SIGTERM on.
  for process in "${ranks[@]}" $relay; do kill "$process" 2> /dev/null || true; done
  wait
  for namespace in $left $right; do ip netns del $namespace 2> /dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT
ip netns add $left 2> "$work/why" && ip netns add $right || skip "no network namespace: $(< "$work/why")" "run it where root may make them"
ip -n $left link set lo up
ip -n $right link set lo up

fail() {
  echo "FAILED: $*"
  tail -n 5 "$work"/rank*
  exit 1
}

# start ADDRESS PORT TIMEOUT_MS ARGUMENT...: ranks 0 and 1 on the left, 2 and 3 on the right. None is
# told its rank on its host.
start() {
  local address=$1 port=$2 timeout=$3 namespace
  shift 3
  ranks=()
  for rank in 0 1 2 3; do
    namespace=$( ((rank < 2)) && echo $left || echo $right)
    env RANK=$rank WORLD_SIZE=4 MASTER_ADDR="$address" MASTER_PORT="$port" NXD_TIMEOUT_MS="$timeout" \
      NXD_CPU_MODE=1 OMP_NUM_THREADS=1 \
      timeout -k 2 300 ip netns exec $namespace unshare --uts \
      sh -c 'hostname "$0" && exec "$@"' host-$namespace "$program" "$@" > "$work/rank$rank" 2>&1 &
    ranks+=($!)
  done
}
expect_right_results() {
  local name=$1
  for rank in 0 1 2 3; do
    wait "${ranks[rank]}" || fail "$name: rank $rank: exit code $?"
    grep -q "rank $rank of 4, local rank $((rank % 2)): ok" "$work/rank$rank" || fail "$name: rank $rank"
  done
  ranks=()
  echo "$name: ok"
}
start_relay() {
  rm -f "$work/relay"
  python3 "$source/tests/scripts/emulated_link.py" $left "$1/24" $right "$2/24" "${@:3}" > "$work/relay" 2>&1 &
  relay=$!
  for _ in {1..6000}; do
    grep -q up "$work/relay" 2> /dev/null && return
    sleep 0.05
  done
  fail "the relay does not start: $(cat "$work/relay")"
}
end_relay() {
  kill "$relay"
  wait "$relay" 2> /dev/null || true
  relay=
}

connect_directly() {
  ip link add nxd0 netns $left type veth peer name nxd0 netns $right
  ip -n $left addr add 10.77.1.1/24 dev nxd0
  ip -n $right addr add 10.77.1.2/24 dev nxd0
  ip -n $left link set nxd0 up
  ip -n $right link set nxd0 up
}
[[ $part == emulated ]] || connect_directly

if [[ $part == direct ]]; then
  start 10.77.1.1 29501 120000
  expect_right_results "direct link"
  exit 0
fi

# mpirun reaches the other host by a remote shell, which enters its namespace here.
if [[ $part == mpirun ]]; then
  cat > "$work/remote_shell" << 'SH'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
namespace=$1
shift
exec ip netns exec "$namespace" unshare --uts sh -c "hostname host-$namespace; $*"
SH
  chmod +x "$work/remote_shell"
  across_hosts() {
    NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=120000 timeout -k 2 300 \
      "$work/remote_shell" $left mpirun.mpich -launcher ssh -launcher-exec "$work/remote_shell" \
      -hosts "$left:2,$right:2" -iface nxd0 -localhost 10.77.1.1 -n 4 "$@" > "$work/rank-mpirun" 2>&1
  }
  ! across_hosts "$program" || fail "mpirun: met without an address"
  grep -q "MPICH runs 4 ranks on several hosts (2 on this one).*set MASTER_ADDR" "$work/rank-mpirun" ||
    fail "mpirun: no advice"
  across_hosts -genv MASTER_ADDR 10.77.1.1 -genv MASTER_PORT 29510 "$program" || fail "mpirun: exit code $?"
  for rank in 0 1 2 3; do
    grep -q "rank $rank of 4, local rank $((rank % 2)): ok" "$work/rank-mpirun" || fail "mpirun: rank $rank"
  done
  echo "mpirun: ok"
  exit 0
fi

start_relay 10.77.2.1 10.77.2.2 --delay 4 --loss 1
start 10.77.2.1 29502 120000
expect_right_results "4 ms, 1 % lost"
end_relay

# A host that cannot be reached: those who came are told who did not, and the others that nobody
# answers them.
start_relay 10.77.4.1 10.77.4.2
kill -USR1 "$relay"
start 10.77.4.1 29504 10000
for rank in 0 1 2 3; do
  ! wait "${ranks[rank]}" || fail "unreachable: rank $rank joined"
  told=$( ((rank < 2)) && echo "2 of 4 ranks did not come within 10000 ms: rank 2, 3" ||
    echo "no store answers at 10.77.4.1:29504")
  grep -q "nxd_context_create (rank $rank of 4).*$told" "$work/rank$rank" || fail "unreachable: rank $rank"
done
echo "unreachable: ok"
end_relay

# cut_link NAME ADDRESS PORT: the store is served on the side that has the address.
cut_link() {
  local name=$1 timeout=10000 others line root took
  start_relay 10.77.3.1 10.77.3.2 --delay 1
  start "$2" "$3" $timeout lose
  for rank in 0 1 2 3; do
    for _ in {1..6000}; do
      grep -q runs "$work/rank$rank" && break
      sleep 0.05
    done
    grep -q runs "$work/rank$rank" || fail "$name: rank $rank does not run"
  done
  sleep 0.3
  kill -USR1 "$relay"
  for rank in 0 1 2 3; do
    wait "${ranks[rank]}" || fail "$name: rank $rank: exit code $?"
    line=$(grep -E "^rank $rank lost: (TIMEOUT|PEER_LOST) root " "$work/rank$rank") || fail "$name: rank $rank"
    [[ $line == *" in all_reduce: "* ]] || fail "$name: rank $rank names no operation: $line"
    read -r root took < <(sed -E 's/.* root (-?[0-9]+) after ([0-9]+) ms .*/\1 \2/' <<< "$line")
    others=$( ((rank < 2)) && echo "2 3" || echo "0 1")
    [[ " $others " == *" $root "* ]] || fail "$name: rank $rank names no rank of the other side: $line"
    # Counted from the last collective that worked, which was before the cut.
    ((took < 2 * timeout)) || fail "$name: rank $rank took longer than twice its timeout: $line"
  done
  ranks=()
  echo "$name: ok; the last rank knew after ${took} ms"
  end_relay
}
cut_link "cut" 10.77.3.1 29503
