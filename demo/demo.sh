#!/bin/sh
# What cuwheel does, on this machine: called by `./run demo`, which puts cuwheel on PATH.
set -eu
OUT=demo-out
mkdir -p "$OUT"
export COLUMNS="${COLUMNS:-80}"

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi

step() { printf '\n%s# %s%s\n' "$bold" "$1" "$plain"; }

# Shows a command, runs it, and says how long it took. An answer of "no" (status 1) is an answer.
show() {
    printf '$ %s\n' "$*"
    began=$(date +%s)
    status=0
    "$@" || status=$?
    [ "$status" -le 1 ] || { printf 'the demo ends here: status %s\n' "$status" >&2; exit "$status"; }
    printf '(%s s)\n' "$(($(date +%s) - began))"
}

step "What is this machine, and what is wrong with it?"
show cuwheel doctor --save "$OUT/machine.json"

step "What is a GPU, and which toolkits compile for it?"
show cuwheel gpus "rtx 5060 ti"
show cuwheel toolkits --compiles "rtx 5060 ti"

step "What is in a wheel that somebody else built? (downloaded from your index)"
show cuwheel inspect bitsandbytes==0.50.2 --html "$OUT/bitsandbytes.html"

step "Done"
printf 'the machine profile: %s\n' "$OUT/machine.json"
printf 'the report as a page: %s\n' "$OUT/bitsandbytes.html"
