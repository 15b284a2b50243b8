#!/usr/bin/env bash
# Builds device_versions.cu with the files of the samples, and runs it: bash benchmarks/gpu/device_versions.sh OUT [ARGS]
set -euo pipefail
out=${1:?a folder for the objects and the program}
shift
mkdir -p "$out"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
arch=${ARCH:-native}
jobs=()
for file in samples/{gemm/gemm,gemm/gemm_cublas,nbody/nbody,nbody/barnes_hut,pagerank/pagerank,kmotif/kmotif}.cu \
  benchmarks/gpu/device_versions.cu; do
  nvcc -arch="$arch" -std=c++17 -O3 -Xcompiler -O3,-fopenmp -c "$file" -o "$out/$(basename "$file").o" & jobs+=($!)
done
for file in samples/{nbody/nbody,nbody/barnes_hut,pagerank/pagerank,kmotif/kmotif}.cpp; do
  g++ -O3 -std=c++17 -fopenmp -c "$file" -o "$out/$(basename "$file").o" & jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
nvcc -arch="$arch" -Xcompiler -fopenmp "$out"/*.o -o "$out/device_versions" -lcublas -lcublasLt
[ -n "${BUILD_ONLY:-}" ] || "$out/device_versions" "$@"
