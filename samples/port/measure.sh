#!/usr/bin/env bash
# Microseconds a step of the program as it was, and after each step of the port (docs/port.md).
# Usage: samples/port/measure.sh [RANKS [COLUMNS HEIGHT]]      from the repository's root; 2 ranks, 2048 x 1024 points each
#
# Environment: TARGET (cuda, or host without a GPU), TRANSPORTS (those to compare; default "mpi_host nccl peer", on the host
# "mpi_host mpi_cuda"), SEARCH (time limit of the search, 120s), WORK (scratch directory, build/port), ARCH (native),
# DAGC (dagc), MPICXX (mpicxx), MPIEXEC (mpiexec), PYTHON (python3).
set -euo pipefail
ranks=${1:-2} columns=${2:-2048} height=${3:-1024} steps=20
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dagc=${DAGC:-dagc} mpicxx=${MPICXX:-mpicxx} mpiexec=${MPIEXEC:-mpiexec} work=${WORK:-build/port}
target=${TARGET:-$(command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo host)}
transports=${TRANSPORTS:-$([ "$target" = cuda ] && echo mpi_host nccl peer || echo mpi_host mpi_cuda)}
common=(--target "$target" -D "columns=$columns" -D "height=$height" -D "steps=$steps")
mkdir -p "$work"

row() { printf '%-52s %10.2f\n' "$1" "$2"; }

# compiled FILE DIR OPTION...: the median of a run of `steps` steps, in microseconds a step.
compiled() {
  local file=$1 folder=$work/$2
  shift 2
  $dagc compile "$here/$file" "${common[@]}" "$@" --run -n "$ranks" --force --quiet -o "$folder" >"$folder.txt"
  awk -v s="$steps" '/^ranks/ { getline; print $2 / s }' "$folder.txt"  # the line after the head of the table
}

$dagc compile "$here/port.dag" "${common[@]}" --no-build --force --quiet -o "$work/sources" >/dev/null
if [ "$target" = cuda ]; then
  nvcc -O3 -std=c++17 -arch="${ARCH:-native}" -ccbin "$mpicxx" -o "$work/heat" "$here/before/heat.cu"
else # the same text against the runtime of the host target
  $mpicxx -O3 -std=c++17 -ffp-contract=off -pthread -I"$work/sources/include" -I"$work/sources/code/_host" \
    -x c++ "$work/sources/code/before/heat.cu" -o "$work/heat"
fi

printf '%-52s %10s\n' "$ranks ranks, $columns x $height points each, $target" 'us a step'
runs=$(for _ in 1 2 3 4 5; do
  $mpiexec -n "$ranks" "$work/heat" "$columns" "$height" 1000 | sed 's/.*steps: \([0-9.]*\) us.*/\1/'
done | sort -g)
row 'before/heat.cu (median of 5 runs)' "$(sed -n 3p <<<"$runs")"
for step in port overlap; do
  for transport in $transports; do
    row "$step.dag, $transport, the first implementation" "$(compiled $step.dag "$step-$transport" --transport "$transport")"
  done
done
$dagc explore "$here/overlap.dag" -n "$ranks" "${common[@]}" --transport "${transports// /,}" --time "${SEARCH:-120s}" --quiet \
  -o "$work/overlap.db" >"$work/explore.txt"
$dagc best "$work/overlap.db" --force --quiet -o "$work/best" >"$work/best.txt"
data=$work/overlap-${transports%% *}/data-$ranks
$mpiexec -n "$ranks" "$work/best/bench" --data "$data" --json "$work/best.json" >"$work/best-run.txt"
row "overlap.dag, the best of the search" "$(${PYTHON:-python3} -c "import json, statistics
print(statistics.median(json.load(open('$work/best.json'))['time']['seconds']) * 1e6 / $steps)")"
cat "$work/best.txt"
