#!/usr/bin/env bash
# The Jacobi solvers of NVIDIA's multi-gpu-programming-models beside samples/jacobi: microseconds an iteration.
# Usage: jacobi_peer.sh CLONE RANKS SIZE...        CLONE is your own clone of NVIDIA/multi-gpu-programming-models
#
# Builds, in WORK (default build/jacobi-peer), the peer-to-peer version (one thread a GPU), NCCL and NCCL in CUDA graphs,
# and runs each REPEATS times (default 3) on a SIZE x SIZE grid, ITERATIONS iterations (default 1000), without the norm.
# Prints CSV: version, grid, GPUs, microseconds an iteration, speed-up over one GPU (measured in the same run).
# Needs nvcc, NCCL and an MPI with mpicxx and mpirun (MPIRUN, MPICXX).
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: jacobi_peer.sh CLONE RANKS SIZE..." >&2; exit 2; }
clone=$(cd "$1" && pwd) ranks=$2
shift 2
work=${WORK:-build/jacobi-peer} repeats=${REPEATS:-3} iterations=${ITERATIONS:-1000} arch=${ARCH:-sm_90}
mpicxx=${MPICXX:-mpicxx} mpirun=${MPIRUN:-mpirun --allow-run-as-root --bind-to none --oversubscribe}
cuda=$(dirname "$(dirname "$(command -v nvcc)")")
mkdir -p "$work"

nvcc -O3 -arch="$arch" -std=c++17 -DHAVE_CUB -Xcompiler -fopenmp -o "$work/p2p" "$clone/multi_threaded_p2p/jacobi.cu" &
for version in nccl nccl_graphs; do
  {
    nvcc -O3 -arch="$arch" -std=c++17 -DHAVE_CUB -c -o "$work/$version.o" "$clone/$version/jacobi_kernels.cu"
    $mpicxx -O3 -std=c++17 -I"$cuda/include" "$clone/$version/jacobi.cpp" "$work/$version.o" -L"$cuda/lib64" \
      -lcudart -ldl -lnccl -o "$work/$version"
  } &
done
wait

echo "version,grid,gpus,us_per_iteration,speedup_over_one_gpu"
for size in "$@"; do
  # A norm costs a reduction: none but that of the first iteration is computed.
  options=(-nx "$size" -ny "$size" -niter "$iterations" -nccheck $((iterations + 1)) -csv)
  for version in p2p nccl nccl_graphs; do
    for _ in $(seq "$repeats"); do
      if [ "$version" = p2p ]; then
        line=$("$work/p2p" "${options[@]}" | tail -n 1)
      else
        line=$($mpirun -n "$ranks" "$work/$version" "${options[@]}" | tail -n 1)
      fi
      # ..., time on all GPUs, time on one (seconds for all iterations)
      awk -F', *' -v v="$version" -v s="$size" -v n="$ranks" -v i="$iterations" \
        '{ printf "%s,%s x %s,%s,%.2f,%.3f\n", v, s, s, n, $(NF-1) / i * 1e6, $NF / $(NF-1) }' <<<"$line"
    done
  done
done
