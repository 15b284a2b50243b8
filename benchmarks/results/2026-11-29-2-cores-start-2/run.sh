#!/usr/bin/env bash
# The start of an emitted program on up to 1 000 ranks of SMPI, on hosts of four ranks. Usage: run.sh FOLDER RANKS...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program="$here/../../../samples/heat/heat.dag -D nx=16 -D rows=4 -D steps=1"
mkdir -p "$1" && cd "$1" && shift
dagc compile $program -D transport=mpi_host --target host --no-build --force -o heat
smpicxx -std=c++17 -O0 -Iheat/include heat/bench.cpp -o bench -lpthread -ldl
cat >platform.xml <<'END'
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="many" prefix="node-" suffix="" radical="0-249" speed="1Gf" core="4" bw="25GBps" lat="1us" bb_bw="10TBps" bb_lat="1us"/>
</platform>
END
for host in $(seq 0 249); do echo "node-$host:4"; done >hosts
for ranks in "$@"; do
  dagc setup $program -n "$ranks" -o "data-$ranks" --quiet
  smpirun -np "$ranks" -platform platform.xml -hostfile hosts --cfg=smpi/privatization:dlopen --cfg=smpi/coll-selector:mpich \
    --cfg=contexts/stack-size:4096 --cfg=smpi/simulate-computation:no -trace --cfg=tracing/smpi/internals:yes \
    --cfg=tracing/filename:"$ranks.trace" ./bench --data "data-$ranks" --repeats 1 --seconds 0.000001 --quiet
  python "$here/messages.py" "$ranks.trace" 4
done
