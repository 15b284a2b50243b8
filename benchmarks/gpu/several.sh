#!/usr/bin/env bash
# Ops on several GPUs of one rank, and on sockets: results under random placements against NumPy, the link between two
# GPUs, and how long (A B) (C D) takes under placements on one and on two GPUs. Needs two GPUs.
# Usage: several.sh OUT [SIZE...]        TIME: seconds of all (240); what would begin too late is left out, and said
# Rehearsal: TARGET=host PLACEMENTS="two:gpu,gpu1,gpu" several.sh OUT 64
set -u
mkdir -p "${1:?usage: several.sh OUT [SIZE...]}"; out=$(cd "$1" && pwd); shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -gt 0 ] || set -- 4096 1024
target=${TARGET:-cuda} work=$(mktemp -d) time=${TIME:-240}
export PYTHONUNBUFFERED=1
say() { echo "$SECONDS s: $*" | tee -a "$out/times.txt"; }
left() { [ $((time - SECONDS)) -ge "$1" ] || { say "no time for $2"; return 1; }; }  # SECONDS WHAT
{ nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv; nvidia-smi topo -m; nvcc --version | tail -2; nproc
  git rev-parse HEAD; } >"$out/machine.txt" 2>&1

# NAME, then where e, f, g run
placements=${PLACEMENTS:-"one:gpu,gpu,gpu two:gpu,gpu1,gpu second:gpu1,gpu1,gpu1 third:gpu,gpu,gpu1 cpu:cpu,cpu,cpu beside:gpu,cpu,gpu
  socket:gpu,socket0,gpu sockets:socket0,socket1,gpu1"}
placed() { # SIZE: its placements, without a product on the CPU where that takes minutes
  for one in $placements; do case $one in cpu* | beside* | socket*) [ "$1" -le 1024 ] || continue ;; esac; echo "$one"; done
}
built() { # SIZE NAME WHERE: the files of a placement
  IFS=, read -r e f g <<<"$3"
  dagc explore benchmarks/gpu/several.dag -n 1 --target "$target" -D n="$1" -D e.device="$e" -D f.device="$f" -D g.device="$g" \
    --streams 2 --budget "$4" --confirm 2 --no-trace --quiet --seconds 0.005 --time 10s -o "$work/$1-$2-$4.db"
}
hops() { # SIZE DEVICE [OPTION...]: four of ten ops are there
  local far=(); for i in 1 3 5 7; do far+=(-D "o[$i].device=$2"); done
  dagc compile benchmarks/gpu/hops.dag -D n=$(($1 * $1)) "${far[@]}" --target "$target" -o "$work/hops-$1-$2" --quiet --force "${@:3}"
}
for size in "$@"; do
  for one in $(placed "$size"); do built "$size" "${one%:*}" "${one#*:}" 1 >"$work/$size-${one%:*}.build" 2>&1 & done
  for device in gpu gpu1; do hops "$size" $device & done
done >"$out/builds.txt" 2>&1
wait
say built
for size in "$@"; do
  for device in gpu gpu1; do
    left 10 "hops, $size" || continue
    echo "== $size, four ops on $device"; hops "$size" $device --run -n 1
  done >"$out/hops-$size.txt" 2>&1
  for one in $(placed "$size"); do
    left 15 "$size $one" || continue
    echo "== $size $one"
    timeout 30 bash -c "$(declare -f built); target=$target work=$work; built $size ${one%:*} ${one#*:} 8" 2>&1
  done >"$out/explored-$size.txt"
  say "$size"
done
rm -rf "$work"
left 40 tests && { timeout $((time - SECONDS)) python -m pytest -q -p no:cacheprovider tests/emit/test_devices.py -k two_gpus >"$out/tests.txt" 2>&1; say tested; }
[ ! -f "$out/tests.txt" ] || tail -n 3 "$out/tests.txt"
grep -E "^==|^best|^program|wrong|error" "$out"/explored-*.txt; grep -E "^==|^ +1 " "$out"/hops-*.txt
