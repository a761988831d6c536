"""Calls a function of a Python file once, and prints what it returns: run as `python call_function.py FILE NAME JSON`.

It runs in the environment that is measured, which has no cuwheel: nothing but the standard library of Python 3.9.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def load(file: str, name: str) -> Callable[..., Any]:
    """The function, with the file's own folder on the path as a script has it."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("cuwheel_measured", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["cuwheel_measured"] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise SystemExit(f"{file} has no function {name}")
    return function  # type: ignore[no-any-return]


if __name__ == "__main__":
    returned = load(sys.argv[1], sys.argv[2])(**json.loads(sys.argv[3]))
    sys.stdout.write(f"{returned!r}\n" if returned is not None else "")
