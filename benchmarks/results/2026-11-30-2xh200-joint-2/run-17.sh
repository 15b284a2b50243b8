#!/usr/bin/env bash
# seconds: 300
# gpus: 2
out=$OUT; mkdir -p "$out"
(n=0; while [ ! -e /tmp/go ] && [ $n -lt 170 ]; do sleep 1; n=$((n+1)); done; echo) | taskset -c 4-15 timeout ${LIMIT:-360} python -m benchmarks.gpu.joint --out /tmp/joint17 --programs gemm 3mm fdtd-2d corr syrk bicg --gpus 2 --seeds 2 --judged 2 --budget 5000 --each 30 --limit 165 --wait > "$out/joint.txt" 2>&1
cp /tmp/joint17/joint.md /tmp/joint17/joint.jsonl "$out/" 2>/dev/null; cp /tmp/joint17/*.log "$out/" 2>/dev/null; tail -9 "$out/joint.txt"
