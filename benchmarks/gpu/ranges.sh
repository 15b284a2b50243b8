#!/usr/bin/env bash
# Versions on two devices over MLCD's ranges, and its networks, on a machine with a GPU and 16 cores. Continues what OUT has.
# Usage: ranges.sh OUT [SECONDS]        (default 600: a quarter for GEMM; builds take 20 to 90 s more)
# KNOWN: folders of records whose inputs are not drawn again. PARTS: only these of `gemm nbody pagerank kmotif gemm-relu
# again networks`.
set -uo pipefail
out=$1 seconds=${2:-600} seed=${SEED:-0}
cores=${CORES:-0-13} others=${OTHERS:-14,15}  # of measurements, and of everything else
export PYTHONUNBUFFERED=1
mkdir -p "$out"
parts=" ${PARTS:-gemm nbody pagerank kmotif gemm-relu again networks} "
has() { [[ $parts == *" $1 "* ]]; }
has networks && { taskset -c "$others" python -m benchmarks.gpu.gnn --deep --compile --out "$out/warm" --jobs 2 & }
kernels=(); for kernel in gemm gemm-relu pagerank nbody kmotif; do has $kernel && kernels+=("$kernel"); done
[ ${#kernels[@]} -eq 0 ] || python -m benchmarks.gpu.devices build "${kernels[@]}"
measure() {  # KERNEL PERCENT [OPTION...]
  local time=$((seconds * $2 / 100))
  timeout $((time + 60)) taskset -c "$cores" python -m benchmarks.gpu.devices measure "$1" --time "$time" --watchdog 5 \
    --seed "$seed" ${KNOWN:+--known $KNOWN} "${@:3}"
}
for part in "gemm 25" "nbody 14" "pagerank 14" "kmotif 12" "gemm-relu 16"; do
  has "${part% *}" && measure $part --out "$out"
done
has again && measure gemm 6 --out "$out/again" --again "$out"
wait
has networks && taskset -c "$cores" python -m benchmarks.gpu.gnn --deep --out "$out/gnn" --time $((seconds * 13 / 100)) --patience 1
rm -rf "$out/warm" "$out/gnn/work"
