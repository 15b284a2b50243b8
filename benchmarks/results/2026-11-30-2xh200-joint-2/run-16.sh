#!/usr/bin/env bash
# seconds: 480
# gpus: 2
out=$OUT; mkdir -p "$out"
taskset -c 0-11 timeout ${LIMIT:-500} python -m benchmarks.gpu.joint --out /tmp/joint16 --programs corr covar gramschm 3dconv gemm mvt gesummv 2dconv --gpus 2 --seeds 2 --judged 2 --budget 5000 --each 30 --limit 290 > "$out/joint.txt" 2>&1
cp /tmp/joint16/joint.md /tmp/joint16/joint.jsonl "$out/" 2>/dev/null; cp /tmp/joint16/*.log "$out/" 2>/dev/null; tail -11 "$out/joint.txt"
