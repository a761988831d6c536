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

step "Will it run on our machines?"
show cuwheel check bitsandbytes==0.50.2 --on demo/fleet.toml --html "$OUT/fleet.html"

step "What would we have to build for two of them?"
show cuwheel plan --for h100,l40 --cuda 13.0

step "The same wheel without what these two never load"
show cuwheel slim bitsandbytes==0.50.2 --for h100,l40 --cuda 12.8 -o "$OUT"

step "The proof that it is still the wheel they need"
show cuwheel check "$OUT"/bitsandbytes-*slim*.whl --on h100,l40,b200 --torch-cuda 12.8

step "Done"
printf 'the machine profile:   %s\n' "$OUT/machine.json"
printf 'the reports as pages:  %s\n' "$OUT/bitsandbytes.html" "$OUT/fleet.html"
printf 'the smaller wheel:     %s\n' "$OUT"/bitsandbytes-*slim*.whl
