"""Refuse to publish wheels with a kernel that lacks code for a GPU: python prepublish.py h100,l40 dist/*.whl"""

import sys

import cuwheel_core

gpus = sys.argv[1].split(",")
found = cuwheel_core.coverage(sys.argv[2:], gpus)
for gpu in gpus:
    for kernel in found.lacking(gpu):
        print(f"{kernel.library}: {kernel.name} has no code for {gpu}")
sys.exit(any(map(found.lacking, gpus)))
