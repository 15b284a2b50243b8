#!/usr/bin/env bash
# The Jacobi solvers of NVIDIA's multi-gpu-programming-models beside samples/jacobi: microseconds an iteration.
# Usage: jacobi_peer.sh CLONE RANKS SIZE...        CLONE is your own clone of NVIDIA/multi-gpu-programming-models
#
# Builds, in WORK (default build/jacobi-peer), the versions with a thread for each GPU (copies, copies with overlap,
# peer-to-peer, and its optimised version) and those with NCCL (plain, with overlap, in CUDA graphs), and runs each REPEATS
# times (default 3) on a SIZE x SIZE grid, ITERATIONS iterations (default 1000), without the norm. After LIMIT seconds
# (default: none) no further run begins. Its versions with MPI need an MPI that takes device pointers, that with NVSHMEM
# needs NVSHMEM: they are not run. BUILD_ONLY=1 only builds.
# Prints CSV: version, grid, GPUs, microseconds an iteration, speed-up over one GPU (measured in the same run).
# Needs nvcc, NCCL and an MPI with mpicxx and mpirun (MPIRUN, MPICXX).
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: jacobi_peer.sh CLONE RANKS SIZE..." >&2; exit 2; }
clone=$(cd "$1" && pwd) ranks=$2
shift 2
work=${WORK:-build/jacobi-peer} repeats=${REPEATS:-3} iterations=${ITERATIONS:-1000} arch=${ARCH:-sm_90}
mpicxx=${MPICXX:-mpicxx} mpirun=${MPIRUN:-mpirun --allow-run-as-root --bind-to none --oversubscribe}
cuda=$(dirname "$(dirname "$(command -v nvcc)")")
threaded="multi_threaded_p2p multi_threaded_p2p_opt multi_threaded_copy multi_threaded_copy_overlap"
ranked="nccl nccl_overlap nccl_graphs"
mkdir -p "$work"

build() {
  local version=$1 flags=(-O3 -arch="$arch" -std=c++17 -DHAVE_CUB)
  if [ -f "$clone/$version/jacobi.cu" ]; then
    nvcc "${flags[@]}" -Xcompiler -fopenmp -o "$work/$version" "$clone/$version/jacobi.cu"
  else
    nvcc "${flags[@]}" -c -o "$work/$version.o" "$clone/$version/jacobi_kernels.cu"
    $mpicxx -O3 -std=c++17 -I"$cuda/include" "$clone/$version/jacobi.cpp" "$work/$version.o" -L"$cuda/lib64" \
      -lcudart -ldl -lnccl -o "$work/$version"
  fi
}
for version in $threaded $ranked; do
  [ -x "$work/$version" ] || { build "$version" >&2 || echo "$version: does not build" >&2; } &
done
wait
[ -z "${BUILD_ONLY:-}" ] || exit 0

echo "version,grid,gpus,us_per_iteration,speedup_over_one_gpu"
for _ in $(seq "$repeats"); do
  for size in "$@"; do
    # A norm costs a reduction: none but that of the first iteration is computed.
    options=(-nx "$size" -ny "$size" -niter "$iterations" -nccheck $((iterations + 1)) -csv)
    for version in $threaded $ranked; do
      [ "$SECONDS" -lt "${LIMIT:-1000000}" ] || exit 0
      [ -x "$work/$version" ] || continue
      command=("$work/$version")
      case " $ranked " in *" $version "*) command=($mpirun -n "$ranks" "$work/$version") ;; esac
      line=$("${command[@]}" "${options[@]}" | tail -n 1) || { echo "$version: fails at $size" >&2; continue; }
      # ..., time on all GPUs, time on one (seconds for all iterations)
      awk -F', *' -v v="$version" -v s="$size" -v n="$ranks" -v i="$iterations" \
        '{ printf "%s,%s x %s,%s,%.2f,%.3f\n", v, s, s, n, $(NF-1) / i * 1e6, $NF / $(NF-1) }' <<<"$line"
    done
  done
done
