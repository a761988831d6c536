# SPDX-License-Identifier: Apache-2.0
"""`python -m several_libraries` prints which of NVIDIA's libraries were found."""

import several_libraries

for name, version in several_libraries.versions().items():
    print(name, version)
