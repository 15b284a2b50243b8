#!/usr/bin/env bash
# What tuning the launch settings before the search is worth: heat and jacobi on two GPUs, with the default settings
# and with tuned ones. Prints the best of each and how long the whole command took.
# Usage: explore_launch.sh [OPTION of explore...] with OUT (where results go), DAGC (command), RANKS, BUDGET
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
dagc=${DAGC:-dagc} out=${OUT:-build/explore-launch} ranks=${RANKS:-2} budget=${BUDGET:-200}
mkdir -p "$out"

# both NAME FILE OPTION...: the sample with both sources of launch settings.
both() {
  local name=$1 file=$2 launch start
  shift 2
  for launch in fixed auto; do
    echo "== $name, --launch $launch"
    start=$SECONDS
    rm -rf "$out/$name-$launch.db" "$out/$name-$launch-build"
    "$dagc" explore "$file" "$@" -n "$ranks" --budget "$budget" --launch "$launch" -o "$out/$name-$launch.db" --quiet \
      || echo "$name: failed ($?)"
    echo "-- $((SECONDS - start)) s in all"
  done
}

both heat samples/heat/heat.dag -D nx=4096 -D rows=2048 --transport nccl,peer "$@"
both jacobi samples/jacobi/jacobi.dag -D nx=8192 -D rows=$((8192 / ranks)) --transport nccl,peer "$@"
