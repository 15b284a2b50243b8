#!/usr/bin/env bash
# The Jacobi solvers of NVIDIA's multi-gpu-programming-models beside samples/jacobi: microseconds an iteration.
# Usage: jacobi_peer.sh BUILT RANKS SIZE...
#
# BUILT is a clone of NVIDIA/multi-gpu-programming-models that you have built by its own instructions: BUILT/VERSION/jacobi
# are its programs. This only runs them. Of the versions with a thread for each GPU (copies, copies with overlap,
# peer-to-peer, and its optimised version) and those with NCCL (plain, with overlap, in CUDA graphs), it runs those that are
# there REPEATS times (default 3) on a SIZE x SIZE grid, ITERATIONS iterations (default 1000), without the norm, and names
# the others. After LIMIT seconds (default: none) no further run begins. Its versions with MPI need an MPI that takes device
# pointers, that with NVSHMEM needs NVSHMEM: they are not run.
# Prints CSV: version, grid, GPUs, microseconds an iteration, speed-up over one GPU (measured in the same run).
# Needs an mpirun for the versions with NCCL (MPIRUN). Exit code 3: none of the programs is there.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: jacobi_peer.sh BUILT RANKS SIZE..." >&2; exit 2; }
built=$1 ranks=$2
shift 2
repeats=${REPEATS:-3} iterations=${ITERATIONS:-1000}
mpirun=${MPIRUN:-mpirun --allow-run-as-root --bind-to none --oversubscribe}
threaded="multi_threaded_p2p multi_threaded_p2p_opt multi_threaded_copy multi_threaded_copy_overlap"
ranked="nccl nccl_overlap nccl_graphs"

versions=
for version in $threaded $ranked; do
  if [ -x "$built/$version/jacobi" ]; then versions="$versions $version"; else echo "$version: $built/$version/jacobi is not there" >&2; fi
done
[ -n "$versions" ] || { echo "$built: none of the programs is there: build them as its README says" >&2; exit 3; }

echo "version,grid,gpus,us_per_iteration,speedup_over_one_gpu"
for _ in $(seq "$repeats"); do
  for size in "$@"; do
    # A norm costs a reduction: none but that of the first iteration is computed.
    options=(-nx "$size" -ny "$size" -niter "$iterations" -nccheck $((iterations + 1)) -csv)
    for version in $versions; do
      [ "$SECONDS" -lt "${LIMIT:-1000000}" ] || exit 0
      command=("$built/$version/jacobi")
      case " $ranked " in *" $version "*) command=($mpirun -n "$ranks" "$built/$version/jacobi") ;; esac
      line=$("${command[@]}" "${options[@]}" | tail -n 1) || { echo "$version: fails at $size" >&2; continue; }
      # ..., time on all GPUs, time on one (seconds for all iterations)
      awk -F', *' -v v="$version" -v s="$size" -v n="$ranks" -v i="$iterations" \
        '{ printf "%s,%s x %s,%s,%.2f,%.3f\n", v, s, s, n, $(NF-1) / i * 1e6, $NF / $(NF-1) }' <<<"$line"
    done
  done
done
