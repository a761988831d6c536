"""Which libraries of a package its import loads for certain: read from its Python, which is never run.

Certain is what stands at the top level of a module that the package's own `__init__` imports, and of those that these
import. What is in functions, under conditions or in a `try` that goes on without it may be loaded or not.
"""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code.syntax import calls, dotted_name, goes_on, named, opened, parse, suppresses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.device_code.source import Texts

_MOST_MODULES = 400


class Import(Struct, frozen=True, kw_only=True):
    """What importing a package does for certain. `loaded`: paths of libraries. `files`: the Python that it runs."""

    loaded: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()


def of_package(texts: Texts, distribution: str | None, libraries: Iterable[str]) -> Import:
    """Libraries in the order in which they are met; nothing where it is not clear what is imported."""
    entry = _entry(texts.names, distribution)
    if entry is None:
        return Import()
    walk = _Walk(texts, libraries)
    walk.module(entry)
    return Import(loaded=tuple(walk.loaded), files=frozenset(walk.files))


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
        self._extensions = {dotted: path for path in self._libraries if (dotted := dotted_name(path))}
        self._seen: set[str] = set()
        self.loaded: dict[str, None] = {}
        self.files: set[str] = set()

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
        tree = parse(self._read(path)) if path in self._files else None
        if tree is None:
            return []
        self.files.add(path)
        functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        here = dotted if path == package else dotted.rpartition(".")[0]
        found: list[str] = []
        try:
            statements = list(_certain(tree.body, functions))
        except RecursionError:  # functions that call each other, thousands of them
            return []
        for statement in statements:
            found += named(statement, here)
            for file in opened(statement):
                self.loaded.update(dict.fromkeys(each for each in self._libraries if _file(each) == file))
        return found


def _file(path: str) -> str:
    return posixpath.basename(path)


def _certain(body: Iterable[ast.stmt], functions: dict[str, ast.FunctionDef]) -> Iterator[ast.stmt]:
    """The simple statements that run whenever the module is imported, those of its functions that it calls included."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.While, ast.AsyncFor)):
            continue
        if isinstance(statement, ast.Try):
            if not goes_on(statement):
                yield from _certain([*statement.body, *statement.orelse, *statement.finalbody], functions)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            if not suppresses(statement):
                yield from _certain(statement.body, functions)
        elif isinstance(statement, ast.ClassDef):
            yield from _certain(statement.body, functions)
        else:
            yield statement
            for name in calls(statement):
                if function := functions.pop(name, None):  # once: it may call itself
                    yield from _certain(function.body, functions)
