# seconds: 430
# gpus: 2
# Jacobi from the plain text and two public 3-D stencils, NVIDIA's best versions, copies (the first run ended with an error that main no longer has). May be cut at any time after 60 s.
set -u
export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
here=$PWD/.carry-run/fr2; out=$OUT/fr2; mkdir -p "$out" /tmp/fr2
if [ -d /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -1)" -gt 20000000 ]; then mkdir -p /dev/shm/fr2; export TMPDIR=/dev/shm/fr2; fi
{ nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv; nvidia-smi topo -m | head -4; nproc; mpirun --version | head -1; nvcc --version | tail -2; } > "$out/machine.txt" 2>&1
chmod +x "$here/copy" "$here"/built/*/*
built=/tmp/fr2/built; rm -rf $built; cp -r "$here/built" /tmp/fr2/
"$here/copy" jacobi-2048=$((1024*2048*4)) jacobi-8192=$((4096*8192*4)) jacobi-16384=$((8192*16384*4)) csc3d=$((192*384*384*8)) heat3d-pitch=$((192*386*448*8)) > "$out/copies.csv" 2>&1
explore() {  # NAME SECONDS FILE OPTION...
  local name=$1 seconds=$2 file=$3; shift 3
  timeout $((seconds + 30)) dagc explore "$file" -n 2 "$@" --time $seconds -o /tmp/fr2/$name.db > "$out/$name.txt" 2>&1 || echo "$name: $?"
  cp /tmp/fr2/$name.db "$out/" 2>/dev/null; echo "$name done at $SECONDS"; tail -25 "$out/$name.txt"
}
J=samples/jacobi/jacobi.dag
explore jacobi-2048 75 $J -D nx=2048 -D rows=1024
explore jacobi-8192 75 $J -D nx=8192 -D rows=4096
rm -rf $built/multi_threaded_copy $built/multi_threaded_p2p_opt
REPEATS=1 timeout 30 bash benchmarks/gpu/jacobi_peer.sh $built 2 2048 8192 16384 > "$out/peer.csv" 2> "$out/peer.log"; cat "$out/peer.csv"
explore heat3d 80 "$here/ports/heat3d.dag"
explore csc3d 80 "$here/ports/csc3d.dag"
explore jacobi-16384 80 $J -D nx=16384 -D rows=8192
