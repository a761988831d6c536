"""How each build system writes a list of architectures. A new spelling is a module here and a row in ROWS."""

from __future__ import annotations

from cuwheel.facts.spellings import bitsandbytes, cargo, cmake, nvcc, torch

ROWS = (cmake.ROW, cmake.ENVIRONMENT, torch.ROW, nvcc.ROW, bitsandbytes.ROW, cargo.ROW)
NAMES = tuple(row.name for row in ROWS)
BY_NAME = {row.name: row for row in ROWS}
# Those that are not told apart when they are read: `CUDAARCHS` is written as CMake's own variable is.
READ_AS = tuple(row.name for row in ROWS if row is not cmake.ENVIRONMENT)
# What an environment, or a project's configuration, may set.
VARIABLES = {row.variable: row for row in ROWS if row.passed}
# The first that matches anywhere in a text.
GUESSES = tuple((row.name, row.guessed) for row in (nvcc.ROW, cmake.ROW, torch.ROW) if row.guessed)
