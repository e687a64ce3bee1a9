#!/usr/bin/env bash
# README's first command as a newcomer runs it: in a clean copy, into a new virtual environment, and a second time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"

export LC_ALL=C.UTF-8
TIMEFORMAT='%R s, of them on the CPU %U'
for run in first second; do
    { time (cd / && env -u VIRTUAL_ENV -u PYTHONPATH bash "$copy/examples/quickstart.sh" </dev/null) 2>&1 |
        tee "$copy/output"; } 2>"$copy/time"
    echo "-- the $run run took $(cat "$copy/time")"
    grep -q '^Verdict: backward() will raise' "$copy/output"
    test -s "$copy/torchgraphdbg.svg"
    rm "$copy/torchgraphdbg.svg"
done
grep -q 'nothing has changed' "$copy/output"
awk '{exit !($NF < 15)}' "$copy/time" # CPU: a busy machine is no fault
