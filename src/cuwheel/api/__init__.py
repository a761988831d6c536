"""The verbs as functions: each puts stages in a row and returns the value that report and JSON show.

A verb's module, and the stages that it needs, are imported when it is asked for: starting fast is a feature. Type
checkers read `__init__.pyi`, which `./run docs` writes.
"""

import importlib

from cuwheel.support.verbs import VERBS

_MODULES = {
    name: module for verb in VERBS.values() for module, _, name in (each.partition(".") for each in verb.functions)
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"cuwheel.api.{_MODULES[name]}"), name)
