#!/usr/bin/env bash
# What dagc gains over applications that it recorded: microseconds a step of the original, of its order and streams in the
# program that was recorded, and of the best of a search; and for heat what makes the difference. 150 s on two GPUs.
# Usage: recorded.sh OUT [RANKS]   (in the root of a checkout, after benchmarks/gpu/setup.sh)
#
# Writes steps.csv (application, what, microseconds a step), and a log of each command. SECONDS_OF_SEARCH (45), for each with its
# compilation; TRANSPORTS; TARGET=host rehearses it without a GPU, on smaller arrays.
set -u
out=$1 ranks=${2:-2} target=${TARGET:-cuda} work=$(mktemp -d) search=${SECONDS_OF_SEARCH:-45}
mkdir -p "$out"
declare -A source=([heat]=samples/port/before/heat.cu [waves]=tests/record/apps/waves.cu)
declare -A size=([heat]="2048 1024" [waves]="4096 1024")
transports=${TRANSPORTS:-mpi_host,nccl,peer} rounds=4 steps=8  # a round has two steps
[ "$target" = cuda ] || { size=([heat]="256 64" [waves]="256 64"); transports=mpi_host; }
row() { echo "$1,$2,$3" | tee -a "$out/steps.csv"; }

recorded() {  # APPLICATION, of this repository
  local app=$1
  mkdir -p "$work/$app"; cp "${source[$app]}" "$work/$app/"; cd "$work/$app" || exit
  { time dagc record --host "$app.cu" -o "$app.dag" --rounds $rounds --quiet -- mpiexec -n "$ranks" "./$app" ${size[$app]} 12; } > "$out/$app-record.txt" 2>&1
  cp "$app.dag" "${app}_original.txt" "$out/"
  [ "$target" != cuda ] || nvcc -O3 -std=c++17 -arch=native -ccbin "${DAGC_MPICXX:-mpicxx}" -o "$app" "$app.cu" > "$out/$app-nvcc.txt" 2>&1
}
for app in waves heat; do recorded $app & done
wait
for app in waves heat; do
  cd "$work/$app" || exit
  if [ -x "$app" ]; then
    runs=$(for _ in 1 2 3 4 5; do "${DAGC_MPIEXEC:-mpiexec}" -n "$ranks" "./$app" ${size[$app]} 1000; done | grep -o '[0-9.]* us a step' | sort -g)
    row $app original "$(sed -n 3p <<< "$runs" | cut -d' ' -f1)"
  fi
  timeout $((search + 15)) dagc explore $app.dag -n "$ranks" --target "$target" --transport "$transports" --original ${app}_original.txt \
    --time "${search}s" --no-trace --quiet -o "$out/$app.db" > "$out/$app-explore.txt" 2>&1
  row $app "its order and streams" "$(awk -v s=$steps '$1 == "original" { print $2 / s; exit }' "$out/$app-explore.txt")"
  [ $app != heat ] || timeout 35 dagc explain "$out/$app.db" --original ${app}_original.txt --pairs 10 --quiet > "$out/$app-explain.txt" 2>&1
  row $app "best of the search" "$(awk -v s=$steps '$1 == "best" { print $2 / s; exit }' "$out/$app-explore.txt")"
done
grep -hE '^(original|measured|best)' "$out"/*-explore.txt
