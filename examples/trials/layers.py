"""Plays a fault of the hard kind: in most cold starts, and never with other shapes, another type, or when warm.

A real program would load a model here. This one only needs Python.
"""

import os
import random
import sys
from pathlib import Path

OFTEN = 0.8
shapes, kind = sys.argv[1:3]
cache = Path(os.environ["CUDA_CACHE_PATH"])
is_cold = not any(cache.iterdir())
(cache / "compiled").touch()
if is_cold and shapes == "mixed" and kind == "nf4" and random.random() < OFTEN:  # noqa: S311 - a fault, no secret
    print("about to go down", flush=True)
    os.abort()
