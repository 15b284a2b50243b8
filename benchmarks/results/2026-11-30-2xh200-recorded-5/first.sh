#!/usr/bin/env bash
# seconds: 200
# gpus: 2
# Three public applications by themselves, in their own order and streams, and explored: the 3-D heat solver of cschpc (CUDA-aware MPI: MPICH on a UCX with CUDA), cuda_sol, and conjugate gradients with a preconditioner.
. .carry-run/common.sh
out=$OUT/recorded13; mkdir -p "$out"; machine "$out"
[ -d /dev/shm ] && { mkdir -p /dev/shm/t13; export TMPDIR=/dev/shm/t13; }
here=$PWD/.carry-run/recorded13; work=$(mktemp -d); start=$SECONDS
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
wait; say compiled
csc_own() { cd c/3d/cuda; for i in 1 2 3; do for s in 20 520; do timeout 25 mpiexec -n 2 ./heat_cuda $S $S $S $s 2>&1 | grep -E 'Iteration|Memory|rror|Average|support' | tr '\n' ' '; echo "steps $s"; done; done; }
aware csc_own > "$out/csc-own.txt" 2>&1; say csc "$(tail -1 "$out/csc-own.txt")"
(cd a; for i in 1 2 3; do for s in 20 520; do b=$(date +%s%N); timeout 25 mpiexec -n 2 ./cuda_sol 64 2 1 1 1 1 $s > /tmp/cuda_sol.txt 2>&1; e=$(date +%s%N); echo "steps $s: $(((e - b) / 1000)) us, loop $(grep -h 'total' output_*cuda.txt | tr '\n' ' ')"; done; done) > "$out/cuda_sol-own.txt" 2>&1
(cd p/stage4*; for i in 1 2 3; do timeout 25 mpiexec -n 2 ./poisson 400 400 2>&1 | grep -E 'Iter|Solver'; done) > "$out/poisson-own.txt" 2>&1
say originals
rec() { # NAME FOLDER OPTIONS... -- COMMAND
  local name=$1 folder=$2; shift 2
  (cd "$folder"; { time timeout 60 dagc record "$@"; echo "rc $?"; } > "$out/$name-source.txt" 2>&1; cp "$name.dag" "$name"_calls_*.cu "$name"_original.txt "$out/" 2>/dev/null; say "$name $(head -1 "$out/$name-source.txt")")
}
aware rec csc c/3d/cuda --source core_cuda.cu --source core.cpp --source heat.cpp --source main.cpp --source setup.cpp --source io.cpp --source utilities.cpp -I ../../common -I "$work/aware" -o csc.dag --force --quiet -- mpiexec -n 2 ./heat_cuda $S $S $S 12 &
rec cuda_sol a --source cuda_sol.cpp --source cuda_sol_kernels.cu -o cuda_sol.dag --force --quiet -- mpiexec -n 2 ./cuda_sol 64 2 1 1 1 1 20 &
rec poisson p/stage4* --source poisson_mpi_cuda_f.cu --from 'update_p_kernel#4' -o poisson.dag --force --quiet -- mpiexec -n 2 ./poisson 400 400 &
wait
search() {  # NAME FOLDER SECONDS OPTIONS
  local name=$1 folder=$2 left=$3; shift 3
  (cd "$folder"; timeout $((left + 35)) dagc explore "$name.dag" -n 2 "$@" --original "${name}_original.txt" --time "${left}s" --no-trace --quiet --streams 2 -o "/tmp/$name.db" > "$out/$name-explore.txt" 2>&1
  cp "/tmp/$name.db" "$out/"; say "$name $(grep -hE '^(original|best)|rror' "$out/$name-explore.txt" | cut -c1-150 | tr '\n' ' ')")
}
aware search csc c/3d/cuda ${CSC:-40} --transport mpi_cuda,peer --mpi-takes-device-pointers --forms off -I ../../common -I "$work/aware"
grep -q '^best' "$out/csc-explore.txt" || { cp "$out/csc-explore.txt" "$out/csc-aware-explore.txt"; search csc c/3d/cuda 30 --transport mpi_host,peer --forms off -I ../../common -I "$work/aware"; }
search poisson p/stage4* ${POISSON:-26} --transport mpi_host,peer --forms off
search cuda_sol a ${SOL:-40} --transport mpi_host,peer --forms off
true
