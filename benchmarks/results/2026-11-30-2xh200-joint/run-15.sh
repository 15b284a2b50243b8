#!/usr/bin/env bash
# seconds: 330
# gpus: 2
# The joint search beside two stages, random draws, and a long reference, at equal time, on one GPU
. .carry-run/common.sh
out=$OUT/joint15; mkdir -p "$out"; machine "$out"
timeout ${LIMIT:-175} python -m benchmarks.gpu.joint --out /tmp/joint15 --programs corr 3mm fdtd-2d 2mm --gpus 2 --seeds 2 --judged 3 --budget 5000 --each 40 --limit 125 > "$out/joint.txt" 2>&1
cp /tmp/joint15/joint.md /tmp/joint15/joint.jsonl "$out/" 2>/dev/null; cp /tmp/joint15/*.log "$out/" 2>/dev/null; tail -6 "$out/joint.txt"
