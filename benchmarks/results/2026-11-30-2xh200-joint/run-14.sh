#!/usr/bin/env bash
# seconds: 330
# gpus: 2
# The joint search beside two stages, random draws, and a long reference, at equal time, on one GPU
. .carry-run/common.sh
out=$OUT/joint14; mkdir -p "$out"; machine "$out"
timeout ${LIMIT:-285} python -m benchmarks.gpu.joint --out /tmp/joint14 --programs 2mm 3mm fdtd-2d corr syr2k atax --gpus 2 --seeds 2 --judged 3 --budget 5000 --each 44 --limit 205 > "$out/joint.txt" 2>&1
cp /tmp/joint14/joint.md /tmp/joint14/joint.jsonl "$out/" 2>/dev/null; cp /tmp/joint14/*.log "$out/" 2>/dev/null; tail -6 "$out/joint.txt"
