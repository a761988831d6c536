"""What a piece of Python says about loading libraries: imports, calls that open a file, and what catches a failure."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Before 3.11 a deep expression can exhaust the stack of the interpreter: it must not be long enough for that.
_LONGEST = 1 << 20 if sys.version_info >= (3, 11) else 1 << 15
_EXTENSION = re.compile(r"\.(?:[A-Za-z0-9_.-]+\.)?(?:so|pyd)")  # .so, .abi3.so, .cpython-312-x86_64-linux-gnu.so
# What opens a library by its file name: ctypes, torch, importlib, tensorflow, cffi.
OPENERS = frozenset(
    {
        "CDLL",
        "PyDLL",
        "WinDLL",
        "LoadLibrary",
        "load_library",
        "ExtensionFileLoader",
        "spec_from_file_location",
        "load_op_library",
        "dlopen",
    }
)
_HELPER = re.compile(r"(?<![a-zA-Z])load_?(?:\w*_)?(?:lib|ext|ops?\b|so\b|shared)", re.IGNORECASE)
_IMPORTERS = frozenset({"import_module", "__import__"})
_GOES_ON = frozenset({"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException", "RuntimeError"})


def dotted_name(path: str) -> str | None:
    """`pkg/_C.abi3.so` is pkg._C; None for a library that Python cannot import by its name."""
    folder, name = posixpath.split(path)
    stem, dot, rest = name.partition(".")
    if not _EXTENSION.fullmatch(dot + rest) or not stem.isidentifier():
        return None
    return ".".join((*filter(None, folder.split("/")), stem))


def parse(text: str | None) -> ast.Module | None:
    if text is None or len(text) > _LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of somebody else's escape sequences
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def goes_on(statement: ast.Try) -> bool:
    """Whether a library that cannot be loaded is caught, and nothing raised instead."""
    for handler in statement.handlers:
        caught = {"BaseException"} if handler.type is None else names(handler.type)
        if caught & _GOES_ON and not any(isinstance(each, ast.Raise) for each in handler.body):
            return True
    return False


def names(node: ast.AST) -> set[str]:
    """The last parts of all names in it: `contextlib.suppress` is suppress."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def called(node: ast.AST) -> set[str]:
    return names(node.func) if isinstance(node, ast.Call) else set()


def calls(statement: ast.stmt) -> Iterator[str]:
    for each in ast.walk(statement):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id


def named(statement: ast.stmt, package: str) -> Iterator[str]:
    """The modules that an import names; of `from a import b` also a.b, which may be one."""
    if isinstance(statement, ast.Import):
        yield from (each.name for each in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        base = _absolute(statement.module or "", statement.level, package)
        yield base
        yield from (f"{base}.{each.name}" for each in statement.names if each.name != "*")
    else:
        yield from _imported_by_call(statement, package)


def _imported_by_call(statement: ast.stmt, package: str) -> Iterator[str]:
    """`importlib.import_module("pkg._C")`, and `import_module("._C", …)` as from this package."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and called(call) & _IMPORTERS and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                dots = len(name.value) - len(name.value.lstrip("."))
                yield _absolute(name.value[dots:], dots, package)


def _absolute(name: str, level: int, package: str) -> str:
    """A name that begins with so many points, in this package."""
    if not level:
        return name
    parts = package.split(".")
    return ".".join((*parts[: len(parts) - level + 1], *filter(None, [name])))


def suppresses(statement: ast.With | ast.AsyncWith) -> bool:
    return any("suppress" in called(each.context_expr) for each in statement.items)


def constants(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def openers(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in it that open a library."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call) and called(each) & OPENERS)


def helpers(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in it of functions that by their names open libraries: `_load_library("image")`."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call) and any(map(_HELPER.search, called(each))))


def opened(statement: ast.stmt) -> Iterator[str]:
    """The file names that stand in calls which open libraries."""
    return (posixpath.basename(each) for call in openers(statement) for each in constants(call))
