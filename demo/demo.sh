#!/bin/sh
# What cuwheel does, on this machine: called by `./run demo`, which puts cuwheel on PATH.
set -eu
OUT=demo-out
rm -rf "$OUT/dist" "$OUT/record" "$OUT/index"
mkdir -p "$OUT"
export COLUMNS="${COLUMNS:-80}"
command -v g++ >/dev/null 2>&1 || { echo "the demo compiles: it needs g++   (apt install g++)" >&2; exit 1; }

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi

step() { printf '\n%s# %s%s\n' "$bold" "$1" "$plain"; }

# Shows a command, runs it, and says how long it took. An answer of "no" (status 1) is an answer.
show() {
    # Wrapped as a shell would take it.
    printf '$ %s\n' "$*" | fold -s -w 76 | sed -e '$!s/ *$/ \\/' -e '2,$s/^/      /'
    began=$(date +%s)
    status=0
    "$@" || status=$?
    [ "$status" -le 1 ] || { printf 'the demo ends here: status %s\n' "$status" >&2; exit "$status"; }
    printf '(%s s)\n' "$(($(date +%s) - began))"
}

step "What is this machine, and what is wrong with it?"
show cuwheel doctor --save "$OUT/machine.json"

step "What is in a wheel that somebody else built, and will it run on our machines?"
show cuwheel inspect bitsandbytes==0.50.2 --html "$OUT/bitsandbytes.html"
show cuwheel check bitsandbytes==0.50.2 --on demo/fleet.toml --html "$OUT/fleet.html"

step "The same wheel without what an H100 and an L40 never load"
show cuwheel slim bitsandbytes==0.50.2 --for h100,l40 --cuda 12.8 -o "$OUT"

step "Our own wheel: two GPUs, two CUDA versions, compilers from your package index"
show cuwheel build examples/scikit_kernel --for h100,l40 --cuda 13.0,13.4 --provider index -o "$OUT/dist"

step "What is in it?"
show cuwheel inspect "$OUT"/dist/*cu130*.whl

step "Which of the two does each machine need?"
show cuwheel check "$OUT"/dist/*.whl --on demo/fleet.toml --html "$OUT/ours.html"

step "Does it work? Installed and imported; what needs a GPU goes into a kit"
show cuwheel verify "$OUT"/dist/*cu130*.whl --config examples/scikit_kernel/pyproject.toml \
    --pack "$OUT/kit.pyz"
show cuwheel verify "$OUT"/dist/*cu130*.whl --config examples/scikit_kernel/pyproject.toml

step "A build that fails and says nothing: what did its compiler say, and why?"
eval "$(cuwheel toolchain env 13.0 --provider index)"
show cuwheel record -o "$OUT/record" -- sh demo/silent.sh "$OUT/square.o"

step "For everybody else: an index of both, and a page that says what runs where"
show cuwheel publish "$OUT"/dist/*.whl --to "$OUT/index"
show cuwheel publish --check "$OUT/index"

step "Done"
made() { printf '%s\n' "$1"; shift; printf '  %s\n' "$@"; }
made "the machine profile" "$OUT/machine.json"
made "reports as pages" "$OUT/bitsandbytes.html" "$OUT/fleet.html" "$OUT/ours.html" "$OUT/dist/build.html"
made "the smaller wheel" "$OUT"/bitsandbytes-*slim*.whl
made "our wheels" "$OUT"/dist/*.whl
made "their index, a page" "$OUT/index/index.html"
made "for a GPU machine" "python3 $OUT/kit.pyz"
