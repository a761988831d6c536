# SPDX-License-Identifier: Apache-2.0
"""`python -m scikit_kernel 1000` prints the sum of the first thousand squares."""

import sys

import scikit_kernel

print(scikit_kernel.squares(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
