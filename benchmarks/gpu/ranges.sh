#!/usr/bin/env bash
# Versions on two devices over MLCD's ranges, and its networks, on a machine with a GPU and 16 cores. Continues what OUT has.
# Usage: ranges.sh OUT [SECONDS]        (default 600: a third for GEMM; builds take 20 to 90 s more)
# KNOWN: folders of records whose inputs are not drawn again.
set -uo pipefail
out=$1 seconds=${2:-600} seed=${SEED:-0}
cores=${CORES:-0-13} others=${OTHERS:-14,15}  # of measurements, and of everything else
export PYTHONUNBUFFERED=1
mkdir -p "$out"
taskset -c "$others" python -m benchmarks.gpu.gnn --deep --compile --out "$out/warm" --jobs 2 &
networks=$!
python -m benchmarks.gpu.devices build gemm gemm-relu pagerank nbody kmotif
measure() {  # KERNEL PERCENT [OPTION...]
  local time=$((seconds * $2 / 100))
  timeout $((time + 60)) taskset -c "$cores" python -m benchmarks.gpu.devices measure "$1" --time "$time" --watchdog 5 \
    --seed "$seed" ${KNOWN:+--known $KNOWN} "${@:3}"
}
measure gemm 30 --out "$out"
measure nbody 12 --out "$out"
measure pagerank 11 --out "$out"
measure kmotif 15 --out "$out"
measure gemm-relu 10 --out "$out"
measure gemm 7 --out "$out/again" --again "$out"
wait "$networks"
taskset -c "$cores" python -m benchmarks.gpu.gnn --deep --out "$out/gnn" --time $((seconds * 15 / 100)) --patience 1
rm -rf "$out/warm" "$out/gnn/work"
