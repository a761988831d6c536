"""C++ names for people, by the C++ runtime library that nearly every system has. No compiler is needed.

Windows has none that knows these names, which NVIDIA's compilers write there too: a package brings one.

A name from a hostile file may expand without limit, and the library knows none. So only names that
cannot grow much are given to it here; the others go to a child process with a limit on time and memory.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")
_SYMBOL = "__cxa_demangle"
_LONGEST = 1 << 14
_LONGEST_HERE = 1024
# Each reference to an earlier part can at most double the text: so 1 KB stays under a megabyte.
_REFERENCES_HERE = 10
_CHILD_S = 10
_CHILD_MEMORY = 1 << 28
_LINE_LIMIT = 1 << 16


def demangled(names: Iterable[str]) -> Mapping[str, str]:
    """Mangled → readable, for those that could be read; the others are not in it."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    function = _function()
    if function is None:
        return found
    for name in dict.fromkeys(names):
        if not name.startswith("_Z") or len(name) > _LONGEST or not name.isascii() or not name.isprintable():
            continue
        if len(name) > _LONGEST_HERE or name.count("S") + name.count("T") > _REFERENCES_HERE:
            waiting.append(name)
        elif text := function(name):
            found[name] = text
    # The likeliest to end the child come last, so that the others are done by then.
    found.update(_by_child(sorted(waiting, key=lambda name: name.count("S") + name.count("T"))))
    return found


@functools.cache
def _function() -> Callable[[str], str | None] | None:
    import ctypes  # noqa: PLC0415 - few answers need it

    for name in _LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            return functools.partial(_call, ctypes.CDLL(name)[_SYMBOL], ctypes.CDLL(None).free)
    try:
        from pycxxfilt import itanium_demangle  # noqa: PLC0415 - only on Windows
    except ImportError:
        return None

    def call(name: str) -> str | None:
        with contextlib.suppress(ValueError):
            return itanium_demangle(name)
        return None

    return call


def _call(demangle: ctypes._FuncPointer, free: ctypes._FuncPointer, name: str) -> str | None:
    import ctypes  # noqa: PLC0415 - few answers need it

    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    status = ctypes.c_int()
    pointer = demangle(name.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return None
    text = ctypes.string_at(pointer).decode("utf-8", "replace")
    free(pointer)
    return text


def _by_child(names: list[str]) -> Mapping[str, str]:
    """What a child made of them before it finished or was ended; a line each, in order."""
    if not names:
        return {}
    import tempfile  # noqa: PLC0415

    from cuwheel.errors import ToolError, ToolTimeoutError  # noqa: PLC0415
    from cuwheel.support import process  # noqa: PLC0415 - only for names that need it

    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        file = Path(folder, "names")
        file.write_text("\n".join(names), encoding="ascii")
        try:
            done = process.run([sys.executable, "-I", __file__, file], timeout=_CHILD_S * 2, check=False)
        except (ToolError, ToolTimeoutError):
            return {}
    lines = done.stdout.split("\n")[:-1]
    return {name: line for name, line in zip(names, lines, strict=False) if line}


def _child(path: str) -> None:
    sys.path.append(str(Path(__file__).parents[2]))  # it was started without PYTHONPATH
    from cuwheel.support import process_groups  # noqa: PLC0415 - found there

    process_groups.limit_this_one(memory=_CHILD_MEMORY, seconds=_CHILD_S)
    function = _function()
    for name in Path(path).read_text(encoding="ascii").split("\n"):
        text = (function(name) if function else None) or ""
        sys.stdout.write(f"{text if len(text) <= _LINE_LIMIT else ''}\n")


if __name__ == "__main__":
    _child(sys.argv[1])
