#!/usr/bin/env bash
# What the records of sub-system sizes and of launch settings lack, on a machine with a GPU: overwriting plans at 1e5 to 1e7
# rows, sub-systems of up to 4096 rows at 2e7 to 1e8 (TALLEST: these only), launches counted at points of the user's choice beside the default
# ones, with the occupancy that ncu finds, and the tests that need a GPU. 400 s with all parts; may be cut, rows are
# written as it goes.
# PARTS: only these of `points overwrite large largest deep middle tests`. A solve at 2e7 rows takes 2 s to load, at 1e8 10.
# Usage: sizes.sh OUT            rehearsal: OPTIONS="--target host" SMALL=1000 LARGE=2000 LARGEST=4000 MIDDLE=3000 sizes.sh OUT
set -u
mkdir -p "${1:?usage: sizes.sh OUT}"; out=$(cd "$1" && pwd); cd "$(dirname "${BASH_SOURCE[0]}")/../.."
options=${OPTIONS:-} small=${SMALL:-100000,1000000,10000000} large=${LARGE:-20000000} largest=${LARGEST:-100000000}
middle=${MIDDLE:-50000000} work=$(mktemp -d)
export PYTHONUNBUFFERED=1
say() { echo "$SECONDS s: $*" | tee -a "$out/times.txt"; }
{ nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv; nvcc --version | tail -2; nproc; git rev-parse HEAD
  ncu --version | tail -1; df -h /tmp /dev/shm; free -g; } >"$out/machine.txt" 2>&1

tridiag="python benchmarks/gpu/tridiag.py --work $work/tri --memory 16 --ahead 1e8 --blocks 64 $options"
overwrite="--reals f64,f32 --subsystems 32,64 --chunks 2 --depths 0,1 --overwrites 0,1"
tall="--reals f64,f32 --subsystems 128,256,512,768,1024 --chunks 8"
tallest="--reals f64,f32 --subsystems ${TALLEST:-256,512,768,1024,2048,4096} --chunks 8"
deep="--reals f64,f32 --subsystems 32 --chunks 8 --depths 2"
parts=" ${PARTS:-points overwrite large largest deep middle tests} "
has() { [[ $parts == *" $1 "* ]]; }
programs() { $tridiag -o "$work/none.csv" --build-only --sizes "$@"; }
{ { { has overwrite && programs "$small" $overwrite --jobs 12; has large && programs "$large" $tall --jobs 12
      has largest && programs 1000 $tallest --jobs 12; } &
    has deep && programs 1000 $deep --jobs 2
    has largest && programs "$largest" $deep --jobs 2; has middle && programs "$middle" $deep --jobs 2
    wait; }; } >"$out/builds.txt" 2>&1 &
builds=$!

points() { # SECONDS NAME SIZES [POINTS]: listed points judge the others
  timeout "$1" dagc tune samples/polybench/gemm.dag --method rational --forms off --top 2 $options --sizes "$3" \
    ${4:+--points "$4"} -o "$out/points-$2.db" >"$out/points-$2.txt" 2>&1
  say "points $2: exit code $?"
}
sizes=${SIZES:-NI=NJ=NK=256,1000; NI=1024 NJ=128 NK=512}
listed="NI=300,900 NJ=200,1000 NK=400 bx=2,8,32,64 by=16; NI=NJ=512 NK=333 bx=32,128 by=1,4"
has points && { points 70 default "$sizes"; points 40 optimal "$sizes" optimal; }
wait $builds; say built

rows() { # SECONDS NAME SIZES [OPTION...]: what the end leaves out is the last of them, and a batch at most
  has "$2" || return
  timeout "$1" $tridiag -o "$out/$2.csv" --timings 5,11 --cell 0.04 --sizes "${@:3}" >>"$out/tridiag.txt" 2>&1
  say "$2: exit code $?"
}
rows 30 overwrite "$small" $overwrite
rows 45 large "$large" $tall
rows 80 largest "$largest" $tallest
rows 30 deep "$large,$largest" $deep
rows 50 middle "$middle" $tallest
has points && points 30 listed "$sizes" "$listed"
has tests && timeout 40 python -m pytest -q -p no:cacheprovider tests/measure/test_profile.py tests/study/test_gpu.py \
  >"$out/tests.txt" 2>&1
rm -rf "$work"; say end
tail -n 3 "$out"/points-*.txt "$out/tridiag.txt" "$out/tests.txt" 2>&1
