# SPDX-License-Identifier: Apache-2.0
"""`python -m cargo_kernel 100` prints the sum of the first hundred cubes."""

import sys

import cargo_kernel

print(cargo_kernel.cubes(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
