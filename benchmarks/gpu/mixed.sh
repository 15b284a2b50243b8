#!/usr/bin/env bash
# Messages of one program by different transports, and collectives by peer, on one GPU that two and four ranks share:
# whether results are right, and how long reductions take whose ranks are streams (peer_reduce.cu). 185 s.
# Usage: mixed.sh OUT   (in the root of a checkout, after benchmarks/gpu/setup.sh)
#
# Writes correct.csv (program, ranks, exit code), runs.txt, peer_reduce.csv, memcheck.txt. NCCL needs a GPU for each rank:
# the program `both`, with NCCL and peer, only has to build here unless there are two, and says so with exit code 3.
set -u
out=$1 data=tests/emit/data work=$(mktemp -d) peer="--transport peer"
mkdir -p "$out"
a="-D halo.transport=peer -D again.transport=mpi_host -D all.transport=peer -D most.transport=mpi_host -D cast.transport=peer"
b="-D halo.transport=mpi_host -D again.transport=peer -D all.transport=mpi_host -D most.transport=peer -D cast.transport=mpi_host"
cg="-D capture=true -D side=100 -D steps=20"
declare -A file=([types]=$data/element_types.dag [all]=$data/collectives.dag [a]=$data/transports.dag [b]=$data/transports.dag
                 [both]=$data/transports.dag [cg]=samples/cg/cg.dag [cg_host]=samples/cg/cg.dag)
declare -A options=([types]="" [all]="$peer -D tol=0.0" [a]="$a" [b]="$b -D capture=true" [both]="$peer -D collectives=nccl"
                    [cg]="$peer $cg" [cg_host]="$peer -D collectives=mpi_host $cg")
compile() { timeout "$1" dagc compile "${file[$2]}" ${options[$2]} -o "$work/$2" --target cuda --force --quiet "${@:3}"; }
for name in "${!file[@]}"; do compile 100 "$name" > "$work/$name.build" 2>&1 || cat "$work/$name.build" >> "$out/builds.txt" & done
nvcc -O3 -std=c++17 -arch=native -Itemplates/runtime benchmarks/gpu/peer_reduce.cu -o "$work/peer_reduce"
wait
CUDA_DEVICE_MAX_CONNECTIONS=32 timeout 30 "$work/peer_reduce" > "$out/peer_reduce.csv"
for run in types:2 all:4 a:4 b:4 cg:2 cg_host:2 all:2 types:4 both:2; do
  name=${run%:*} ranks=${run#*:}
  compile 20 "$name" --run -n "$ranks" --seconds 0.05 --repeats 3 > "$work/run.txt" 2>&1
  echo "$name,$ranks,$?" >> "$out/correct.csv"
  { echo "== $name, $ranks ranks"; cat "$work/run.txt"; } >> "$out/runs.txt"
done
compute-sanitizer --tool memcheck --error-exitcode 9 timeout 60 "$work/peer_reduce" 2 4 > "$out/memcheck.txt" 2>&1
cat "$out/correct.csv"
