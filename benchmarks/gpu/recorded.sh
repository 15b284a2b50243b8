#!/usr/bin/env bash
# What dagc gains over applications that it recorded: microseconds a step of the original, of its order and streams in the
# program that was recorded, and of the best of a search; and for heat what makes the difference. 140 s on two GPUs.
# Usage: recorded.sh OUT [RANKS]   (in the root of a checkout, after benchmarks/gpu/setup.sh)
#
# Writes steps.csv (application, what, microseconds a step), each row as soon as it is known, and a log of each
# command. LIMIT (140): seconds for all, of which heat's search has SECONDS_OF_SEARCH (40), with its compilers, and that of
# waves what is left; TRANSPORTS; TARGET=host rehearses it without a GPU, on smaller arrays. The originals run first, alone:
# beside compilers on other cores, heat took 246 us a step in place of 62.
set -u
out=$1 ranks=${2:-2} target=${TARGET:-cuda} work=$(mktemp -d) search=${SECONDS_OF_SEARCH:-40} limit=${LIMIT:-140}
mkdir -p "$out"
declare -A source=([heat]=samples/port/before/heat.cu [waves]=tests/record/apps/waves.cu)
declare -A size=([heat]="2048 1024" [waves]="2048 512")
transports=${TRANSPORTS:-mpi_host,peer} rounds=4 steps=8  # a round has two steps
[ "$target" = cuda ] || { size=([heat]="256 64" [waves]="256 64"); transports=mpi_host; }
row() { echo "$1,$2,$3" | tee -a "$out/steps.csv"; }
left() { echo $((limit - SECONDS)); }

built() {  # APPLICATION, of this repository
  local app=$1
  mkdir -p "$work/$app"; cp "${source[$app]}" "$work/$app/"; cd "$work/$app" || exit
  [ "$target" != cuda ] || nvcc -O3 -std=c++17 -arch=native -ccbin "${DAGC_MPICXX:-mpicxx}" -o "$app" "$app.cu" > "$out/$app-nvcc.txt" 2>&1
}
recorded() {  # APPLICATION
  local app=$1
  cd "$work/$app" || exit
  { time dagc record --host "$app.cu" -o "$app.dag" --rounds $rounds --quiet -- mpiexec -n "$ranks" "./$app" ${size[$app]} 12; } > "$out/$app-record.txt" 2>&1
  cp "$app.dag" "${app}_original.txt" "$out/"
}
original() {
  local app=$1 runs
  cd "$work/$app" && [ -x "$app" ] || return
  runs=$(for _ in 1 2 3 4 5; do timeout 20 "${DAGC_MPIEXEC:-mpiexec}" -n "$ranks" "./$app" ${size[$app]} 1000; done | grep -o '[0-9.]* us a step' | sort -g)
  row "$app" original "$(sed -n 3p <<< "$runs" | cut -d' ' -f1)"
}
searched() {  # APPLICATION SECONDS
  local app=$1 text=$out/$1-explore.txt
  timeout $(($2 + 12)) dagc explore "$app.dag" -n "$ranks" --target "$target" --transport "$transports" --original "${app}_original.txt" \
    --time "${2}s" --no-trace --quiet -o "$out/$app.db" > "$text" 2>&1
  row "$app" "its order and streams" "$(awk -v s=$steps '$1 == "original" { print $2 / s; exit }' "$text")"
  row "$app" "best of the search" "$(awk -v s=$steps '$1 == "best" { print $2 / s; exit }' "$text")"
}

(built waves) & (built heat) & wait
original heat; original waves
recorded waves & waves=$!
recorded heat; cd "$work/heat" || exit
searched heat "$search"
[ "$(left)" -lt 10 ] || timeout 30 dagc explain "$out/heat.db" --original heat_original.txt --pairs 10 --quiet > "$out/heat-explain.txt" 2>&1
wait $waves; cd "$work/waves" || exit
[ "$(left)" -lt 20 ] || searched waves $(($(left) - 10))
grep -hE '^(original|measured|best)' "$out"/*-explore.txt
rm -rf "$work"
