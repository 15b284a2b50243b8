# seconds: 110 (5 programs are compiled in the first 50; the last runs may be cut)
# gpus: 1 (2 are better: then the last rows compare nccl, too)
export PYTHONUNBUFFERED=1 DAGC_CACHE=/tmp/hosts-cache; O=$OUT/hosts; mkdir -p $O; PATH=$PATH:/usr/local/cuda/bin
{ nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv; nvidia-smi topo -m; nproc; cat /sys/devices/system/node/online; git rev-parse HEAD; } > $O/machine.txt 2>&1
G=$(nvidia-smi -L | wc -l); F="samples/heat/heat.dag -D nx=1024 -D rows=256 -D steps=4 --target cuda --quiet"
D=( [0]="-D transport=mpi_host" [1]="-D transport=mpi_host -D within_host=peer" [2]="-D transport=peer" [3]="-D transport=nccl" [4]="-D transport=nccl -D within_host=peer" )
for i in 0 1 2 3 4; do [ $i -ge 3 ] && [ $G -lt 2 ] && continue; timeout 90 python -m dagc compile $F ${D[$i]} -o /tmp/h$i > $O/compile$i.txt 2>&1 & done; wait
run() { # hosts of H ranks, N ranks, which
  echo "== ranks $2, $1 a host: ${D[$3]}" >> $O/log.txt
  DAGC_RANKS_PER_HOST=$1 timeout 25 python -m dagc compile $F ${D[$3]} -o /tmp/h$3 --force --run -n $2 --bind near --repeats 15 2>&1 | grep -v "^limit\|^    *[a-z].* at least\|^wrote\|^built" >> $O/log.txt; }
if [ $G -lt 2 ]; then N=4; else N=4; fi
for i in 0 1; do run 2 $N $i; done; run 3 $N 1; run 4 $N 2; run 4 $N 1; run 1 $N 1
if [ $G -ge 2 ]; then for i in 2 1 3 4; do run 2 2 $i; done; run 1 2 3; run 1 2 4; run 1 2 0; run 1 2 1; run 2 2 0; fi
cat $O/log.txt
