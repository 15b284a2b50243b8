#!/usr/bin/env bash
# seconds: 200
# gpus: 2
# As recorded13, with a GPU for each rank, and conjugate gradients with cuBLAS. Three public applications by themselves, in their own order and streams, and explored: the 3-D heat solver of cschpc (CUDA-aware MPI: MPICH on a UCX with CUDA), cuda_sol, and conjugate gradients with a preconditioner.
. .carry-run/common.sh
out=$OUT/recorded14; mkdir -p "$out"; machine "$out"
[ -d /dev/shm ] && { mkdir -p /dev/shm/t14; export TMPDIR=/dev/shm/t14; }
here=$PWD/.carry-run/recorded14; work=$(mktemp -d); start=$SECONDS
cp -r "$here"/apps/* "$work"; cd "$work"
at() { echo $((SECONDS - start)); }
say() { echo "$(at) s: $*" | tee -a "$out/log.txt"; }
mpicxx=${DAGC_MPICXX:-mpicxx}
n() { nvcc -O3 -g -std=c++17 -arch=native "$@"; }
mkdir aware; echo '#include <mpi.h>' > aware/mpi-ext.h; echo 'extern "C" int MPIX_Query_cuda_support(void) { return 1; }' > aware/aware.cpp
S=$((${SIZE:-192}))
aware() { ( . "${PREFIX:-/tmp/p}/env-cuda-aware.sh"; "$@" ); }
csc_build() {
  cd c/3d/cuda
  for f in heat core setup io utilities main; do "$DAGC_MPICXX" -g -O3 -march=native -I../../common -I"$work/aware" -I/usr/local/cuda/include -DPINNED_MEMORY -DNDEBUG -fopenmp -c $f.cpp & done
  n -ccbin "$DAGC_MPICXX" -I../../common -I"$work/aware" -DPINNED_MEMORY -c core_cuda.cu & gcc -O3 -c ../../common/pngwriter.c & "$DAGC_MPICXX" -c "$work/aware/aware.cpp" &
  wait; "$DAGC_MPICXX" -fopenmp *.o -o heat_cuda -L/usr/local/cuda/lib64 -lcudart
}
aware csc_build > "$out/csc-build.txt" 2>&1 &
(cd a; n -ccbin "$mpicxx" cuda_sol.cpp cuda_sol_kernels.cu -o cuda_sol) > "$out/cuda_sol-build.txt" 2>&1 &
(cd p/stage4*; n -ccbin "$mpicxx" poisson_mpi_cuda_f.cu -o poisson) > "$out/poisson-build.txt" 2>&1 &
(cd solver; n -ccbin "$mpicxx" solver.cu -o solver -lcublas) > "$out/solver-build.txt" 2>&1 &
wait; say compiled
printf '#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}\nexec "$@"\n' > each; chmod +x each; each=$PWD/each
csc_own() { cd c/3d/cuda; for i in 1 2 3; do for s in 20 1020; do timeout 25 mpiexec -n 2 $each ./heat_cuda $S $S $S $s 2>&1 | grep -E 'Iteration|rror|support' | tr '\n' ' '; echo "steps $s"; done; done; }
aware csc_own > "$out/csc-own.txt" 2>&1; say csc "$(tail -1 "$out/csc-own.txt")"
(cd a; for i in 1 2 3; do for s in 20 5020; do b=$(date +%s%N); timeout 25 mpiexec -n 2 ./cuda_sol 64 2 1 1 1 1 $s > /tmp/cuda_sol.txt 2>&1; e=$(date +%s%N); echo "steps $s: $(((e - b) / 1000)) us"; done; done) > "$out/cuda_sol-own.txt" 2>&1
(cd p/stage4*; for i in 1 2 3; do timeout 25 mpiexec -n 2 $each ./poisson 400 400 2>&1 | grep -E 'Iter|Solver'; done) > "$out/poisson-own.txt" 2>&1
(cd solver; for i in 1 2 3; do timeout 15 mpiexec -n 2 $each ./solver 65536 500; done) > "$out/solver-own.txt" 2>&1; say "$(tail -1 "$out/solver-own.txt")"
say originals
rec() { # NAME FOLDER OPTIONS... -- COMMAND
  local name=$1 folder=$2; shift 2
  (cd "$folder"; { time timeout 60 dagc record "$@"; echo "rc $?"; } > "$out/$name-source.txt" 2>&1; cp "$name.dag" "$name"_calls_*.cu "$name"_original.txt "$out/" 2>/dev/null; say "$name $(head -1 "$out/$name-source.txt")")
}
rec poisson p/stage4* --source poisson_mpi_cuda_f.cu --from 'update_p_kernel#4' -o poisson.dag --force --quiet -- mpiexec -n 2 ./poisson 400 400 &
rec cuda_sol a --source cuda_sol.cpp --source cuda_sol_kernels.cu -o cuda_sol.dag --force --quiet -- mpiexec -n 2 ./cuda_sol 64 2 1 1 1 1 20 &
rec solver solver --source solver.cu -o solver.dag --force --quiet -- mpiexec -n 2 ./solver 65536 12 &
wait
search() {  # NAME FOLDER SECONDS OPTIONS
  local name=$1 folder=$2 left=$3; shift 3
  (cd "$folder"; timeout $((left + 30)) dagc explore "$name.dag" -n 2 "$@" --original "${name}_original.txt" --time "${left}s" --no-trace --quiet --streams 2 -o "/tmp/$name.db" > "$out/$name-explore.txt" 2>&1
  cp "/tmp/$name.db" "$out/"; say "$name $(grep -hE '^(original|best)|rror' "$out/$name-explore.txt" | cut -c1-150 | tr '\n' ' ')")
}
search solver solver ${SOLVER:-30} --transport mpi_host,peer --forms off
search poisson p/stage4* ${POISSON:-55} --transport mpi_host,peer --forms off
search cuda_sol a ${SOL:-60} --transport mpi_host --forms off
true
