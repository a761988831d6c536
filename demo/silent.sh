#!/bin/sh
# A build script that throws its compiler's output away, as some do.
nvcc -arch=sm_35 -c demo/square.cu -o "$1" >/dev/null 2>&1 || { echo "build script: nvcc failed"; exit 1; }
