#!/usr/bin/env bash
# seconds: 330
# gpus: 1
# The joint search beside two stages, random draws, and a long reference, at equal time, on one GPU
. .carry-run/common.sh
out=$OUT/joint13; mkdir -p "$out"; machine "$out"
timeout ${LIMIT:-285} python -m benchmarks.gpu.joint --out /tmp/joint13 --programs fdtd-2d 2mm 3mm --gpus ${GPUS:-1} --seeds 2 --judged 3 --budget 5000 --each 46 --limit 190 > "$out/joint.txt" 2>&1
cp /tmp/joint13/joint.md /tmp/joint13/joint.jsonl "$out/" 2>/dev/null; cp /tmp/joint13/*.log "$out/" 2>/dev/null; tail -6 "$out/joint.txt"
