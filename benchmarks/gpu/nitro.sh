#!/usr/bin/env bash
# Variants at Nitro's numbers of inputs: trained on drawn inputs and some real ones, tested on real ones and on drawn ones.
# DATA has matrices/ and graphs/ (Matrix Market), images/train/ and images/test/ (no photograph in both).
# Usage: nitro.sh DATA OUT [SAMPLE...]        without samples: histogram bfs sort spmv
# TRAIN and TEST: more options of the two commands of a sample, such as "--time 60".
set -euo pipefail
data=$(cd "${1:?usage: nitro.sh DATA OUT [SAMPLE...]}" && pwd); mkdir -p "${2:?usage: nitro.sh DATA OUT [SAMPLE...]}/lists"; out=$(cd "$2" && pwd); shift 2
[ $# -gt 0 ] || set -- histogram bfs sort spmv
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export DAGC_MATRICES=$data
lists=$out/lists
draw() { python -m benchmarks.gpu.draw "$@"; }

variants() { # SAMPLE, PROGRAM, training lists, test lists, seconds of a cell; each list after @, with commas between
  dagc tune "$2" --variants --inputs "$3" --cell "$5" -o "$out/$1.db" ${TRAIN:-} >"$out/$1-train.txt"
  dagc tune "$2" --evaluate --inputs "$4" --cell "$5" -o "$out/$1.db" ${TEST:-} >"$out/$1-test.txt"
}

for sample in "$@"; do
  case $sample in
    histogram)
      draw histogram "$data/images/train" 90 --seed 11 >"$lists/histogram-train.txt"; draw histogram 60 --seed 11 >>"$lists/histogram-train.txt"
      draw histogram "$data/images/test" 1200 --seed 12 >"$lists/histogram-real.txt"; draw histogram 91 --seed 12 >"$lists/histogram-drawn.txt"
      variants histogram samples/histogram/histogram.dag "@$lists/histogram-train.txt" "@$lists/histogram-real.txt,@$lists/histogram-drawn.txt" 0.004 ;;
    bfs)
      draw bfs 50 --seed 11 >"$lists/bfs-train.txt"
      draw bfs "$data/graphs" "$data/matrices" >"$lists/bfs-real.txt"; draw bfs 50 --seed 12 >"$lists/bfs-drawn.txt"
      variants bfs samples/bfs/bfs.dag "@$lists/bfs-train.txt" "@$lists/bfs-real.txt,@samples/bfs/families5.txt,@$lists/bfs-drawn.txt" 0.006 ;;
    sort)
      draw sort 120 --seed 11 >"$lists/sort-train.txt"; draw sort 582 --seed 12 >"$lists/sort-drawn.txt"
      variants sort samples/sort/sort.dag "@$lists/sort-train.txt" "@samples/sort/families4.txt,@$lists/sort-drawn.txt" 0.004 ;;
    spmv)
      draw spmv 40 --seed 12 >"$lists/spmv-drawn.txt"
      variants spmv samples/spmv/variants.dag "@samples/spmv/train.txt,@benchmarks/gpu/lists/spmv-train.txt" \
        "@benchmarks/gpu/lists/spmv-test.txt,@$lists/spmv-drawn.txt" 0.01 ;;
    *) echo "nitro.sh: no sample $sample" >&2; exit 2 ;;
  esac
done
