"""cuwheel-lab: how often a program fails, under which condition, and how fast it is. Verbs are functions here.

A name is imported when it is first used, as in `cuwheel`. Type checkers read `__init__.pyi`.
"""

from cuwheel_lab.version import __version__ as __version__


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415

    from cuwheel_lab.verbs import LAB  # noqa: PLC0415

    names = LAB.public_names()
    if name == "__all__":
        return ["__version__", *names]
    if module := names.get(name):
        return getattr(import_module(module), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc]
