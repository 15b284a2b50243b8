#!/usr/bin/env bash
# seconds: 60
# gpus: 2
# within_host=put: four ranks on two GPUs as two declared hosts, right; two ranks on one host beside transport=put alone, interleaved; the cost of a bad binding.
out=${1:?usage: run.sh OUT}; mkdir -p "$out"
export DAGC_CACHE=$(mktemp -d)
work=$(mktemp -d); target=${TARGET:-cuda}
puts="tests/emit/data/puts.dag --target $target --quiet"
jacobi="samples/jacobi/jacobi.dag -D nx=${NX:-1024} -D rows=${ROWS:-256} -D steps=10 -D capture=true --target $target --quiet"
names=(put nccl_put peer nccl_peer)
options=("-D transport=put" "-D transport=nccl -D within_host=put" "-D transport=peer" "-D transport=nccl -D within_host=peer")
for i in 0 1 2 3; do timeout ${COMPILE_SECONDS:-50} dagc compile $jacobi ${options[$i]} -o "$work/$i" >"$out/compile-${names[$i]}.txt" 2>&1 & done
for o in mpi_host nccl; do timeout ${COMPILE_SECONDS:-50} dagc compile $puts -D transport=$o -D within_host=put $([ $o = mpi_host ] && echo -D rank_order=neighbours) -o "$work/puts-$o" >"$out/compile-puts-$o.txt" 2>&1 & done
timeout ${COMPILE_SECONDS:-50} dagc compile samples/heat/heat.dag -D nx=64 -D rows=64 -D steps=2 --target host --quiet -o "$work/bind" >"$out/compile-bind.txt" 2>&1 &
dagc setup samples/jacobi/jacobi.dag -D nx=${NX:-1024} -D rows=${ROWS:-256} -D steps=10 -n 2 -o "$work/data" >/dev/null
dagc setup tests/emit/data/puts.dag -n 4 -o "$work/data-puts" >/dev/null
dagc setup tests/emit/data/puts.dag -n 2 -o "$work/data-puts2" >/dev/null
dagc setup samples/heat/heat.dag -D nx=64 -D rows=64 -D steps=2 -n 2 -o "$work/data-bind" >/dev/null
wait
start() { python -c 'import sys; from dagc.build.mpi import require_mpi; from dagc.measure.launch import launch_command; print(*launch_command(require_mpi(), [], int(sys.argv[1])))' $1; }
four=$(start 4) two=$(start 2)
for each in 2 3 4; do
  echo "== four ranks, $each a host, mpi_host and put"; DAGC_RANKS_PER_HOST=$each timeout 15 $four "$work/puts-mpi_host/bench" --data "$work/data-puts" --check-only 2>&1
done | tee "$out/right.txt"
for cores in 0 0,1; do
  echo "== two ranks on cores $cores"; DAGC_BIND=show timeout 15 taskset -c $cores $two "$work/bind/bench" --data "$work/data-bind" --quiet --repeats 3 --json - 2>&1 | python -c '
import json, sys
from dagc.measure.bench import Seat, placement
text = sys.stdin.read()
record = json.loads(text[text.index("{"):])
print(*placement([Seat.of(line) for line in record["environment"]["placement"]]), sep="\n")'
done 2>&1 | tee "$out/binding.txt"
for pass in 1 2 3; do
  for i in 0 1 0 2 3 2; do  # one transport twice: its difference from itself is the noise
    timeout 20 $two "$work/$i/bench" --data "$work/data" --repeats 10 --quiet --json "$out/$pass-${names[$i]}-$([ -e "$out/$pass-${names[$i]}-a.json" ] && echo b || echo a).json" 2>>"$out/errors.txt"
  done
done
python - "$out" <<'P' | tee "$out/table.txt"
import json, statistics, sys
from pathlib import Path
found = {}
for file in sorted(Path(sys.argv[1]).glob("*-*-?.json")):
    pass_, name, turn = file.stem.rsplit("-", 2)
    found.setdefault((name, turn), {})[pass_] = statistics.median(json.loads(file.read_text())["time"]["seconds"])
for (name, turn), by_pass in found.items():
    base = found[name.removeprefix("nccl_"), "a"]
    ratios = sorted(by_pass[p] / base[p] for p in by_pass if p in base)
    print(name, turn, "us:", *(f"{1e6 * t:.2f}" for t in by_pass.values()), "| to one transport:", f"{statistics.median(ratios):.4f}", f"({ratios[0]:.4f} to {ratios[-1]:.4f})")
P
cat >"$work/own" <<'W'
#!/usr/bin/env bash
export CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
exec "$@"
W
chmod +x "$work/own"
DAGC_RANKS_PER_HOST=1 timeout 15 $two "$work/own" "$work/puts-nccl/bench" --data "$work/data-puts2" --check-only 2>&1 | tee "$out/nccl-between.txt"
