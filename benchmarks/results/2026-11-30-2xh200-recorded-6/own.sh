#!/usr/bin/env bash
# seconds: 40
# gpus: 2
# The own time of the conjugate gradients: as it is, with a clock around its loop (the clock that it has also counts the start of CUDA)

work=$(mktemp -d); cp -r APPLICATIONS/* "$work"; cd "$work"
(cd p/stage4*; nvcc -O3 -g -std=c++17 -arch=native -ccbin mpicxx poisson_mpi_cuda_f.cu -o poisson) > "$out/build.txt" 2>&1
printf '#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}\nexec "$@"\n' > each; chmod +x each; each=$PWD/each
(cd p/stage4*; for g in $each env; do for i in 1 2 3 4 5; do timeout 25 mpiexec -n 2 $g ./poisson 400 400 2>&1 | grep -E '^own|Iter' | sed "s|^|${g##*/} |"; done; done) > "$out/poisson-own.txt" 2>&1
grep own "$out/poisson-own.txt" | tail -12
true
