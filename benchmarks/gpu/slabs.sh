#!/usr/bin/env bash
# One process with two GPUs beside two ranks with one each, on the same kernels (slabs_process.dag, slabs_ranks.dag), and one process with
# one GPU: for each a search of orders and streams. Needs two GPUs.
# Usage: slabs.sh OUT [NX,ROWS...]       Rehearsal: TARGET=host EACH=60s BUDGET=4 slabs.sh OUT 64,16
set -u
mkdir -p "${1:?usage: slabs.sh OUT [NX,ROWS...]}"; out=$(cd "$1" && pwd); shift
cd "$(dirname "${BASH_SOURCE[0]}")"
[ $# -gt 0 ] || set -- 4096,2048 1024,256
target=${TARGET:-cuda} work=$(mktemp -d) steps=${STEPS:-10}
export PYTHONUNBUFFERED=1
on() { # DEVICE: where the second slab is
  for t in $(seq 0 $((steps - 1))); do echo -D "step[$t,0].device=gpu" -D "take[$t,0].device=gpu" -D "step[$t,1].device=$1" -D "take[$t,1].device=$1"; done
  echo -D "keep[0].device=gpu" -D "keep[1].device=$1"
}
explored() { # SIZE NAME BUDGET [OPTION...]: one configuration, so that one program is compiled
  local way
  case $2 in
    one-gpu) way="slabs_process.dag -n 1 -D host_memory=pinned $(on gpu)" ;;
    one-process) way="slabs_process.dag -n 1 -D host_memory=pinned -D transfers=at_need $(on gpu1)" ;;
    ranks-*) way="slabs_ranks.dag -n 2 -D staging=fused --transport ${2#ranks-}" ;;
  esac
  dagc explore $way --target "$target" -D nx="${1%,*}" -D rows="${1#*,}" -D steps="$steps" -D capture=true --streams 2 --only orders --budget "$3" \
    --no-trace --quiet --time "${EACH:-8s}" -o "$work/$1-$2.db" "${@:4}"
}
ways=${WAYS:-"one-process ranks-peer one-gpu ranks-mpi_host"}
for size in "$@"; do
  for way in $ways; do EACH=60s explored "$size" "$way" 1 --confirm 0 >"$work/$size-$way.build" 2>&1 & done
  wait
  for way in $ways; do
    echo "== $size $way"
    timeout 60 bash -c "$(declare -f on explored); target=$target work=$work steps=$steps; explored $size $way ${BUDGET:-40} --confirm 3 --resume" 2>&1
  done
done | tee "$out/explored.txt" | grep --line-buffered -E "^==|^best|^measured|error|wrong"
rm -rf "$work"
