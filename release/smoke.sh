#!/usr/bin/env bash
# The installed cuwheel, asked once in every way that needs no GPU and no compiler: on each system before a release.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
library=${1:?usage: release/smoke.sh tests/fixtures/bin/plain-130.so}
printf '%s\n' 'RuntimeError: CUDA error: no kernel image is available for execution on the device' > "$place/error.log"
cp "$library" "$place/libplain.so"

cuwheel --version
cuwheel explain "$place/error.log" --on h100
cuwheel inspect "$place/libplain.so"
cuwheel check "$place/libplain.so" --on h100 --set os=linux,cpu=x86_64
cuwheel slim "$place/libplain.so" --for h100 -o "$place/slim.so"
cuwheel plan --for h100,l40
cuwheel lookup gpu h100
cuwheel doctor || [ $? = 1 ] # 1: something is wrong with this machine, such as no GPU
case $(uname -s) in
    Linux) cuwheel trace -- true ;;
esac
cuwheel record -o "$place/record" -- "$(command -v true)"
echo "all of it answered"
