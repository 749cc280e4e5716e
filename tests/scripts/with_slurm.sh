#!/usr/bin/env bash
# Runs a command inside of a Slurm cluster of this host alone, with daemons, keys, ports and files of
# its own, all of which are gone afterwards.
# usage: with_slurm.sh COMMAND...     77: Slurm is not installed or cannot run here
set -uo pipefail

for tool in srun scontrol slurmctld slurmd munged; do
  command -v "$tool" > /dev/null || { echo "with_slurm: no $tool here"; exit 77; }
done
((EUID == 0)) || { echo "with_slurm: slurmd needs root"; exit 77; }

dir=$(mktemp -d)
chmod 755 "$dir"
daemons=()
end_daemons() {
  # slurmd is last in the list and first to go; it ends the steps it runs.
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do
    kill "${daemons[i]}" 2> /dev/null
    for _ in {1..50}; do kill -0 "${daemons[i]}" 2> /dev/null || break; sleep 0.1; done
    kill -KILL "${daemons[i]}" 2> /dev/null
    wait "${daemons[i]}" 2> /dev/null
  done
  rm -rf "$dir"
}
trap end_daemons EXIT
trap 'exit 143' TERM INT HUP

read -r controller_port node_port < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))')
host=$(hostname)

mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool"
head -c 128 /dev/urandom > "$dir/munge/key"
chmod 600 "$dir/munge/key"
export SLURM_CONF=$dir/slurm.conf
cat > "$SLURM_CONF" << CONF
ClusterName=nxdtest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
CONF

start() {
  "$@" >> "$dir/start.log" 2>&1 &
  daemons+=($!)
}
start munged --foreground --force --key-file "$dir/munge/key" --socket "$dir/munge/socket" \
  --pid-file "$dir/munge/pid" --log-file "$dir/munge/log" --seed-file "$dir/munge/seed"
for _ in {1..600}; do [[ -S $dir/munge/socket ]] && break; sleep 0.1; done
start slurmctld -D -c
start slurmd -D -c -N "$host"
ready=0
for _ in {1..200}; do
  if timeout 5 sinfo -h -o %t 2> /dev/null | grep idle > /dev/null; then ready=1; break; fi
  sleep 0.1
done
if ((!ready)); then
  tail -n 5 "$dir"/*.log
  echo "with_slurm: no node became idle: $(grep -h error "$dir/slurmd.log" | tail -n 1)"
  exit 77
fi
"$@"
code=$?
# A step that was given up on may still hold a process.
timeout 20 scancel --user=root 2> /dev/null
exit $code
