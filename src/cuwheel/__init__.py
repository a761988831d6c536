"""cuwheel gets CUDA wheels to run. Verbs are functions here; requests, answers and errors are beside them.

A name is imported when it is first used, from where `support/verbs.py` says: `cuwheel --version` must not pay for all.
Type checkers, which run nothing, read `__init__.pyi`: `./run docs` writes it from the same rows.
"""

from cuwheel.version import __version__ as __version__
from cuwheel_core.support import host as _host


def _warn(message: str) -> None:
    from cuwheel.support import log  # noqa: PLC0415

    log.warning("%s", message)


def _more_cuda_libraries() -> object:
    from cuwheel.facts.more_libraries import rows_of_variable  # noqa: PLC0415

    return rows_of_variable()


_host.on_limit = _warn
_host.more_cuda_libraries = _more_cuda_libraries  # type: ignore[assignment]


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415

    from cuwheel.support.verbs import public_names  # noqa: PLC0415

    if name == "__all__":
        return ["__version__", *public_names()]
    if module := public_names().get(name):
        return getattr(import_module(module), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
