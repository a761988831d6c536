"""Which libraries of a package its import loads for certain: read from its Python, which is never run.

Certain is what stands at the top level of a module that the package's own `__init__` imports, and of those that these
import. What is in functions, under conditions or in a `try` that goes on without it may be loaded or not.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.inspection.source import Texts

# Before 3.11 a deep expression can exhaust the stack of the interpreter: it must not be long enough for that.
_LONGEST = 1 << 20 if sys.version_info >= (3, 11) else 1 << 15
_MOST_MODULES = 400
_EXTENSION = re.compile(r"\.(?:[A-Za-z0-9_.-]+\.)?(?:so|pyd)")  # .so, .abi3.so, .cpython-312-x86_64-linux-gnu.so
# What opens a library by its file name: ctypes, torch, importlib.
_OPENERS = frozenset({"CDLL", "PyDLL", "WinDLL", "LoadLibrary", "load_library", "ExtensionFileLoader"})
_GOES_ON = frozenset({"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException", "RuntimeError"})


def loaded_by_import(texts: Texts, distribution: str | None, libraries: Iterable[str]) -> tuple[str, ...]:
    """Paths of libraries, in the order in which they are met; nothing where it is not clear what is imported."""
    entry = _entry(texts.names, distribution)
    if entry is None:
        return ()
    walk = _Walk(texts, libraries)
    walk.module(entry)
    return tuple(walk.loaded)


def _entry(names: Sequence[str], distribution: str | None) -> str | None:
    """The package that people import: the one that the distribution is named after, or the only one."""
    inits = [name for name in names if name.count("/") == 1 and name.endswith("/__init__.py")]
    packages = [name.partition("/")[0] for name in inits]
    if distribution:
        wanted = _plain(distribution)  # cupy-cuda12x brings cupy, cupyx and others
        named = [each for each in packages if wanted.startswith(_plain(each))]
        packages = sorted(named, key=len)[-1:] or packages
    return packages[0] if len(packages) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "", name).lower()


class _Walk:
    """Modules by their dotted names, each read once."""

    def __init__(self, texts: Texts, libraries: Iterable[str]) -> None:
        self._read = texts.read
        self._files = frozenset(texts.names)
        self._libraries = tuple(libraries)
        self._extensions = {dotted: path for path in self._libraries if (dotted := _dotted(path))}
        self._seen: set[str] = set()
        self.loaded: dict[str, None] = {}

    def module(self, dotted: str) -> None:
        """It and the packages that it is in."""
        waiting = [dotted]
        while waiting and len(self._seen) < _MOST_MODULES:
            name = waiting.pop(0)
            parents = name.split(".")
            for end in range(1, len(parents) + 1):
                part = ".".join(parents[:end])
                if part not in self._seen:
                    self._seen.add(part)
                    waiting += self._imports(part)

    def _imports(self, dotted: str) -> list[str]:
        """The modules that importing this one imports for certain."""
        if path := self._extensions.get(dotted):
            self.loaded[path] = None
            return []
        base = dotted.replace(".", "/")
        package = f"{base}/__init__.py"
        path = package if package in self._files else f"{base}.py"
        tree = _parse(self._read(path)) if path in self._files else None
        if tree is None:
            return []
        functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        here = dotted if path == package else dotted.rpartition(".")[0]
        found: list[str] = []
        for statement in _certain(tree.body, functions):
            found += _named(statement, here)
            for file in _opened(statement):
                self.loaded.update(dict.fromkeys(each for each in self._libraries if _file(each) == file))
        return found


def _dotted(path: str) -> str | None:
    """`pkg/_C.abi3.so` is pkg._C; None for a library that Python cannot import by its name."""
    folder, name = posixpath.split(path)
    stem, dot, rest = name.partition(".")
    if not _EXTENSION.fullmatch(dot + rest) or not stem.isidentifier():
        return None
    return ".".join((*filter(None, folder.split("/")), stem))


def _file(path: str) -> str:
    return posixpath.basename(path)


def _parse(text: str | None) -> ast.Module | None:
    if text is None or len(text) > _LONGEST:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _certain(body: Iterable[ast.stmt], functions: dict[str, ast.FunctionDef]) -> Iterator[ast.stmt]:
    """The simple statements that run whenever the module is imported, those of its functions that it calls included."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.While, ast.AsyncFor)):
            continue
        if isinstance(statement, ast.Try):
            if not _goes_on(statement):
                yield from _certain([*statement.body, *statement.orelse, *statement.finalbody], functions)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            if not any("suppress" in _called(each.context_expr) for each in statement.items):
                yield from _certain(statement.body, functions)
        elif isinstance(statement, ast.ClassDef):
            yield from _certain(statement.body, functions)
        else:
            yield statement
            for name in _calls(statement):
                if function := functions.pop(name, None):  # once: it may call itself
                    yield from _certain(function.body, functions)


def _goes_on(statement: ast.Try) -> bool:
    """Whether a library that cannot be loaded is caught, and nothing raised instead."""
    for handler in statement.handlers:
        caught = {"BaseException"} if handler.type is None else _names(handler.type)
        if caught & _GOES_ON and not any(isinstance(each, ast.Raise) for each in handler.body):
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    """The last parts of all names in it: `contextlib.suppress` is suppress."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _called(node: ast.AST) -> set[str]:
    return _names(node.func) if isinstance(node, ast.Call) else set()


def _calls(statement: ast.stmt) -> Iterator[str]:
    for each in ast.walk(statement):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id


def _named(statement: ast.stmt, package: str) -> Iterator[str]:
    """The modules that an import names; of `from a import b` also a.b, which may be one."""
    if isinstance(statement, ast.Import):
        yield from (each.name for each in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        base = statement.module or ""
        if statement.level:
            parts = package.split(".")
            above = parts[: len(parts) - statement.level + 1]
            base = ".".join((*above, *filter(None, [base])))
        yield base
        yield from (f"{base}.{each.name}" for each in statement.names if each.name != "*")


def _opened(statement: ast.stmt) -> Iterator[str]:
    """The file names that stand in calls which open libraries."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and _called(call) & _OPENERS:
            for each in ast.walk(call):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield posixpath.basename(each.value)
