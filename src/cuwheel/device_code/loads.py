"""Where a package's Python loads a library that its import does not load for certain: read, never run.

The name of the file is often put together (`glob("_C*.so")`, `find_spec("_C")`): a call that opens a library is taken
to open those of the package that texts of the same code name.
"""

from __future__ import annotations

import ast
import posixpath
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code import syntax
from cuwheel.device_code.libraries import PythonLoad

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.device_code.source import Texts

_MOST_LIBRARIES = 400
_MOST_FILES = 4000
_MOST_TEXT = 1 << 25
_MOST_PARSED = 300
# In a text or a path, behind a point, in an import: not any word that a library is called like (`image`).
_BEFORE = r"(?:[\"'./]|\bimport\b[^\n]{0,200}\W|^[ \t]*)"
_PATTERN = r"[\"'][\w./-]*\*[\w.*-]*\.(?:so|pyd|dll)[\"']"  # "_C*.so"
_PATTERN_ENDS = tuple(f".{suffix}{quote}" for suffix in ("so", "pyd", "dll") for quote in "\"'")


class _Run(Struct, frozen=True):
    """A statement as it runs. `guarded`: in a `try` that goes on, or under a condition. `asked`: in a function."""

    statement: ast.stmt
    guarded: bool
    asked: bool


def of_libraries(texts: Texts, libraries: Iterable[str], at_import: frozenset[str]) -> tuple[PythonLoad, ...]:
    """For each the place that loads it: one that runs `at_import` before others, a bare one before a `try`."""
    wanted = tuple(libraries)[:_MOST_LIBRARIES]
    found: dict[str, PythonLoad] = {}
    for file, tree in _mentioning(texts, wanted):
        try:
            loads = list(_loads(tree, file, wanted, at_import=file in at_import))
        except RecursionError:  # functions that call each other, thousands of them
            continue
        for load in loads:
            known = found.get(load.path)
            if known is None or (load.at_import, not load.guarded) > (known.at_import, not known.guarded):
                found[load.path] = load
    return tuple(found.values())


def _mentioning(texts: Texts, wanted: Sequence[str]) -> Iterator[tuple[str, ast.Module]]:
    """The files that may load one of them: few, so that all of a large package need not be parsed."""
    if not wanted:
        return
    stems = sorted({_stem(path) for path in wanted})
    mention = re.compile(rf"{_BEFORE}(?:{'|'.join(map(re.escape, stems))})(?!\w)|{_PATTERN}", re.MULTILINE)
    remaining, parsed = _MOST_TEXT, 0
    for file in [name for name in texts.names if name.endswith(".py")][:_MOST_FILES]:
        text = texts.read(file) or ""
        remaining -= len(text)
        if remaining < 0 or parsed >= _MOST_PARSED:
            return
        # Plain searches first: the expression takes ten times as long, and most files have none of the names.
        if any(each in text for each in (*stems, *_PATTERN_ENDS)) and mention.search(text):
            parsed += 1
            if tree := syntax.parse(text):
                yield file, tree


def _loads(tree: ast.Module, file: str, wanted: Sequence[str], *, at_import: bool) -> Iterator[PythonLoad]:
    package = posixpath.dirname(file).replace("/", ".")
    modules = {dotted: path for path in wanted if (dotted := syntax.dotted_name(path))}
    runs = list(_runs(tree))
    for each in runs:
        for name in syntax.named(each.statement, package):
            if path := modules.get(name):
                yield _load(path, file, each, at_import=at_import)
    for group in ([each for each in runs if not each.asked], [each for each in runs if each.asked]):
        opening = [each for each in group if _opens(each.statement)]
        if opening:
            first = min(opening, key=lambda each: each.guarded)
            texts = {text for each in group for text in syntax.constants(each.statement)}
            for path in wanted:
                if any(_names(text, path, file) for text in texts):
                    yield _load(path, file, first, at_import=at_import)


def _opens(statement: ast.stmt) -> bool:
    return any(syntax.openers(statement)) or any(syntax.helpers(statement))


def _load(path: str, file: str, run: _Run, *, at_import: bool) -> PythonLoad:
    return PythonLoad(path=path, file=file, guarded=run.guarded, at_import=at_import and not run.asked)


def _names(text: str, path: str, file: str) -> bool:
    """Whether a text of a file means a library: by its file name, a pattern for it, or its name without the suffix."""
    name, library = posixpath.basename(text), posixpath.basename(path)
    if "*" in name:
        return "." in name and fnmatchcase(library, name)
    return name == library or (name == _stem(path) and _is_near(posixpath.dirname(path), posixpath.dirname(file)))


def _is_near(library: str, file: str) -> bool:
    """A bare name is that of a library in the folder of the file, or in one that this is in."""
    return file == library or file.startswith(f"{library}/")


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0]


def _runs(tree: ast.Module) -> Iterator[_Run]:
    defined = (each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
    functions = {each.name: each for each in defined}
    yield from _walk(tree.body, functions, guarded=False, asked=False)
    for function in list(functions.values()):  # those that nothing of the module itself calls
        yield from _walk(function.body, {}, guarded=False, asked=True)


def _walk(
    body: Iterable[ast.stmt],
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef],
    *,
    guarded: bool,
    asked: bool,
) -> Iterator[_Run]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if not any(blocks):
            yield _Run(statement, guarded, asked)
            for name in syntax.calls(statement):
                if function := functions.pop(name, None):  # once: it may call itself
                    yield from _walk(function.body, functions, guarded=guarded, asked=asked)
            continue
        inner = guarded or _is_guard(statement)
        for block in blocks:
            yield from _walk(block, functions, guarded=inner, asked=asked)
        for handler in getattr(statement, "handlers", []):
            yield from _walk(handler.body, functions, guarded=True, asked=asked)


def _is_guard(statement: ast.stmt) -> bool:
    """Whether the package goes on where what is in it does not run, or fails."""
    if isinstance(statement, ast.Try):
        return syntax.goes_on(statement)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return syntax.suppresses(statement)
    return not isinstance(statement, ast.ClassDef)
