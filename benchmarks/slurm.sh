#!/usr/bin/env bash
# Runs a command under a Slurm of two virtual nodes on this machine (root; Debian: apt-get install slurm-wlm munge), and ends it.
# Each node has a name of its own (a UTS namespace), so that programs take the nodes for two hosts:
#   bash benchmarks/slurm.sh srun --mpi=pmi2 -N 2 -n 4 dagc compile samples/heat/heat.dag --target host --run
set -euo pipefail
for tool in slurmctld slurmd munged srun; do
  command -v "$tool" >/dev/null || { echo "no $tool: apt-get install slurm-wlm munge" >&2; exit 3; }
done
work=$(mktemp -d)
mkdir "$work/state"
host=$(hostname -s) cores=$(getconf _NPROCESSORS_ONLN)  # nproc would say OMP_NUM_THREADS
leave() {
  for file in "$work"/*.pid; do [ ! -f "$file" ] || kill "$(cat "$file")" 2>/dev/null || true; done
  for _ in $(seq 20); do rm -rf "$work" 2>/dev/null && break; sleep 0.5; done  # they still write there
}
trap leave EXIT
cat >"$work/slurm.conf" <<END
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPort=26817
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=27001 CPUs=$cores State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=27002 CPUs=$cores State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
export SLURM_CONF=$work/slurm.conf
export MPIR_CVAR_CH4_NETMOD=ofi  # addresses that are short enough for Slurm's PMI-2
if ! munge -n >/dev/null 2>&1; then
  [ -e /etc/munge/munge.key ] || { mungekey --create --keyfile /etc/munge/munge.key && chown munge: /etc/munge/munge.key; }
  mkdir -p /run/munge && chown munge: /run/munge
  runuser -u munge -- munged --pid-file /run/munge/munged.pid
fi
slurmctld -f "$SLURM_CONF"
for node in n1 n2; do unshare --uts sh -c 'hostname "$0" && exec slurmd -N "$0" -f "$1"' "$node" "$SLURM_CONF"; done
for _ in $(seq 60); do
  [ "$(sinfo -h -t idle -o %D)" = 2 ] && break
  sleep 0.5
done
[ "$(sinfo -h -t idle -o %D)" = 2 ] || { echo "the nodes did not start (does another Slurm use port 26817?)" >&2; tail -n 5 "$work"/*.log >&2; exit 5; }
"$@"
