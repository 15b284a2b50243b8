#!/usr/bin/env bash
# Seconds from the start of `explore` to its first measurement with nothing built before, on files that were dropped from memory, with and without a thread that reads the
# compilers from the disk meanwhile, in turn; Python's packages are compiled before, as of an installation.
here=$(dirname "$0") out=${OUT:-out}; mkdir -p "$out"
target=${TARGET:-cuda} work=$(mktemp -d) python=$(sed -n '1s/^#! *//p' "$(command -v dagc)")
case $python in *python*) ;; *) python=python3 ;; esac
unset PYTHONDONTWRITEBYTECODE READ
export PYTHONPYCACHEPREFIX=$work/pyc PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
nproc >>"$out/machine.txt"; uptime >>"$out/machine.txt"
one() { # NAME LIMIT ARGUMENTS...: each line of the log with the milliseconds since the start
  local name=$1 limit=$2 began; shift 2
  DAGC_CACHE=$(mktemp -d -p "$work"); export DAGC_CACHE
  began=$(date +%s%N); BEGAN=$(date +%s.%N); export BEGAN
  timeout -s INT $((limit + 5)) "$python" "$here"/breakdown.py explore "$@" --target "$target" -n 2 --time "${limit}s" \
    -o "$work/$name.db" 2>&1 |
    while IFS= read -r line; do echo "$((($(date +%s%N) - began) / 1000000)) $line"; done >"$out/$name.txt"
  echo "$name: $(grep -E "first measurement:|error" "$out/$name.txt" | head -1 | cut -c1-150)"
}
"$python" -m compileall -q dagc >/dev/null
one jacobi-first "${LIMIT:-14}" samples/jacobi/jacobi.dag  # also compiles the packages that it imports
for round in 1 2; do
  "$python" "$here"/files.py drop >>"$out/dropped.txt" 2>&1
  one jacobi-dropped-$round "${LIMIT:-14}" samples/jacobi/jacobi.dag
  [ $SECONDS -lt 75 ] || break
  "$python" "$here"/files.py drop >>"$out/dropped.txt" 2>&1
  READ=1 one jacobi-read-$round "${LIMIT:-14}" samples/jacobi/jacobi.dag
  [ $SECONDS -lt 60 ] || break
done
[ $SECONDS -gt 75 ] || one jacobi-warm "${LIMIT:-14}" samples/jacobi/jacobi.dag
rm -rf "$work"
