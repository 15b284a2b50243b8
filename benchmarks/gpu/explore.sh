#!/usr/bin/env bash
# Explores the samples on the GPUs of this machine, four ranks, and keeps the results files.
# Usage: explore.sh SECTION... with WORK (scratch), OUT (where results go), MATRICES (folder with *.mtx.xz), DAGC (command)
#
#   data       arrays of all sizes, side by side
#   cuda       transport mpi_cuda; needs an MPI that takes device pointers
#   host SIZE  mpi_host in both stagings, nccl and peer, each with and without capture, then the whole space, of one size:
#              150000, 1500000, 15000000, bcsstk32 or cnr2000
#   ops SIZE   mpi_host with the staging copies as ops, alone
#   captured SIZE  mpi_cuda with what has no messages in CUDA graphs; needs an MPI that takes device pointers
#   halo       the halo exchange over nccl and peer
set -uo pipefail
dagc=${DAGC:-dagc} work=${WORK:-build/explore} out=${OUT:-build/explore/results} matrices=${MATRICES:-.}
spmv=samples/spmv/spmv.dag halo=samples/halo3d/halo3d.dag
halo_size=(-D nx=128 -D ny=128 -D nz=128)
mkdir -p "$work" "$out"

# The -D of a size, and the matrix that it needs.
size() {
  case $1 in
    bcsstk32) export SPMV_MATRIX=$matrices/bcsstk32_pattern.mtx.xz; set_=(-D rows=44609 -D bandwidth=-1) ;;
    cnr2000) export SPMV_MATRIX=$matrices/cnr-2000.mtx.xz; set_=(-D rows=325557 -D bandwidth=-1) ;;
    *) set_=(-D "rows=$1") ;;
  esac
}

# explore NAME DATA OPTION...: a results file $out/NAME.db; says how long it took.
explore() {
  local name=$1 data=$2 start=$SECONDS
  shift 2
  echo "== $name"
  "$dagc" explore "$@" --data "$work/data-$data" -o "$work/$name.db" --quiet || echo "$name: failed ($?)"
  [ -f "$work/$name.db" ] && cp "$work/$name.db" "$out/"
  echo "-- $((SECONDS - start)) s"
}

data() {
  local s
  for s in "$@"; do
    (
      [ -d "$work/data-$s" ] && exit
      if [ "$s" = halo ]; then
        "$dagc" setup $halo "${halo_size[@]}" -n 4 -o "$work/data-halo"
      else
        size "$s"
        "$dagc" setup $spmv "${set_[@]}" -n 4 -o "$work/data-$s"
      fi
    ) &
  done
  wait
}

sampled=(--strategy random --budget 500 --passes 5 --confirm 0)
whole=(--strategy exhaustive --passes 5 --confirm 0)

cuda() {
  local s common=(--transport mpi_cuda --capture off --mpi-takes-device-pointers)
  for s in "$@"; do
    size "$s"
    if [ "$s" = 150000 ]; then
      explore "spmv-$s-mpi_cuda" "$s" $spmv "${set_[@]}" "${common[@]}" "${whole[@]}"
    else
      explore "spmv-$s-mpi_cuda" "$s" $spmv "${set_[@]}" "${common[@]}" "${sampled[@]}"
    fi
  done
  for s in random mcts mcts-min; do
    explore "halo-mpi_cuda-$s" halo $halo "${halo_size[@]}" "${common[@]}" --strategy $s --budget 120 --confirm 10
  done
}

captured() {
  size "$1"
  explore "spmv-$1-mpi_cuda-captured" "$1" $spmv "${set_[@]}" --transport mpi_cuda --capture on --mpi-takes-device-pointers \
    "${sampled[@]}"
}

ops() {
  size "$1"
  explore "spmv-$1-mpi_host-ops" "$1" $spmv "${set_[@]}" --transport mpi_host -D staging=ops --capture off "${sampled[@]}"
}

host() {
  local s=$1
  size "$s"
  explore "spmv-$s-mpi_host" "$s" $spmv "${set_[@]}" --transport mpi_host --capture off "${sampled[@]}"
  ops "$s"
  explore "spmv-$s-nccl" "$s" $spmv "${set_[@]}" --transport nccl --capture both "${whole[@]}"
  explore "spmv-$s-peer" "$s" $spmv "${set_[@]}" --transport peer --capture both "${whole[@]}"
  explore "spmv-$s-all" "$s" $spmv "${set_[@]}" --open yl.variant --open yr.variant \
    --strategy mcts-min --budget 600 --confirm 20 --repeats 10
}

halo() {
  local s
  for s in random mcts-min; do
    explore "halo-all-$s" halo $halo "${halo_size[@]}" --strategy $s --budget 200 --confirm 10
  done
}

while [ $# -gt 0 ]; do
  section=$1
  shift
  case $section in
    data | cuda)
      sizes=()
      while [ $# -gt 0 ] && [[ ! $1 =~ ^(data|cuda|host|ops|captured|halo)$ || $1 == halo && $section == data ]]; do sizes+=("$1"); shift; done
      $section "${sizes[@]}"
      ;;
    host | ops | captured) $section "$1"; shift ;;
    halo) halo ;;
    *) echo "no section $section" >&2; exit 2 ;;
  esac
done
