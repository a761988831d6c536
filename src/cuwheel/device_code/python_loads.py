"""What a package's Python says about loading its libraries: read, never run.

First what importing the package loads for certain, then where its Python loads the others.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code.contents import PythonLoad
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.device_code.source import Texts


# What a piece of Python says about loading libraries: imports, calls that open a file, and what catches a failure.

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


def imported_names(statement: ast.stmt, package: str) -> Iterator[str]:
    """The modules that an import names; of `from a import b` also a.b, which may be one."""
    if isinstance(statement, ast.Import):
        yield from (each.name for each in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        base = _absolute(statement.module or "", statement.level, package)
        yield base
        yield from (f"{base}.{each.name}" for each in statement.names if each.name != "*")
    else:
        # `importlib.import_module("pkg._C")`, and `import_module("._C", …)` as from this package.
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


# Which libraries of a package its import loads for certain: read from its Python, which is never run.
# Certain is what stands at the top level of a module that the package's own `__init__` imports, and of those that these
# import. What is in functions, under conditions or in a `try` that goes on without it may be loaded or not.

_MOST_MODULES = 400


class Import(Struct, frozen=True, kw_only=True):
    """What importing a package does for certain. `loaded`: paths of libraries. `files`: the Python that it runs."""

    loaded: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()


def libraries_that_import_loads(texts: Texts, distribution: str | None, libraries: Iterable[str]) -> Import:
    """Libraries in the order in which they are met; nothing where it is not clear what is imported."""
    # The package that people import: the one that the distribution is named after, or the only one.
    inits = [name for name in texts.names if name.count("/") == 1 and name.endswith("/__init__.py")]
    packages = [name.partition("/")[0] for name in inits]
    if distribution:
        wanted = _plain(distribution)  # cupy-cuda12x brings cupy, cupyx and others
        imported_names = [each for each in packages if wanted.startswith(_plain(each))]
        packages = sorted(imported_names, key=len)[-1:] or packages
    entry = packages[0] if len(packages) == 1 else None
    if entry is None:
        return Import()
    walk = _Walk(texts, libraries)
    walk.module(entry)
    return Import(loaded=tuple(walk.loaded), files=frozenset(walk.files))


def _plain(name: str) -> str:
    return normalised(name).replace("-", "")


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
            found += imported_names(statement, here)
            for file in opened(statement):
                self.loaded.update(dict.fromkeys(each for each in self._libraries if posixpath.basename(each) == file))
        return found


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


# Where a package's Python loads a library that its import does not load for certain: read, never run.
# The name of the file is often put together (`glob("_C*.so")`, `find_spec("_C")`): a call that opens a library is taken
# to open those of the package that texts of the same code name.

_MOST_LIBRARIES = 400
_MOST_FILES = 4000
_MOST_TEXT = 1 << 25
_MOST_PARSED = 300
# In a text or a path, behind a point, in an import: not any word that a library is called like (`image`).
_BEFORE = r"(?:[\"'./]|\bimport\b[^\n]{0,200}\W|^[ \t]*)"
_PATTERN = r"[\"'][\w./-]*\*[\w.*-]*\.(?:so|pyd|dll)[\"']"  # "_C*.so"
_PATTERN_ENDS = tuple(f".{suffix}{quote}" for suffix in ("so", "pyd", "dll") for quote in "\"'")


class _Statement(Struct, frozen=True):
    """A statement as it runs. `guarded`: in a `try` that goes on, or under a condition. `asked`: in a function."""

    statement: ast.stmt
    guarded: bool
    asked: bool


def places_that_load(texts: Texts, libraries: Iterable[str], at_import: frozenset[str]) -> tuple[PythonLoad, ...]:
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
            if tree := parse(text):
                yield file, tree


def _loads(tree: ast.Module, file: str, wanted: Sequence[str], *, at_import: bool) -> Iterator[PythonLoad]:
    package = posixpath.dirname(file).replace("/", ".")
    modules = {dotted: path for path in wanted if (dotted := dotted_name(path))}
    runs = list(_runs(tree))
    for each in runs:
        for name in imported_names(each.statement, package):
            if path := modules.get(name):
                yield _load(path, file, each, at_import=at_import)
    for group in ([each for each in runs if not each.asked], [each for each in runs if each.asked]):
        opening = [each for each in group if any(openers(each.statement)) or any(helpers(each.statement))]
        if opening:
            first = min(opening, key=lambda each: each.guarded)
            texts = {text for each in group for text in constants(each.statement)}
            for path in wanted:
                if any(_names(text, path, file) for text in texts):
                    yield _load(path, file, first, at_import=at_import)


def _load(path: str, file: str, run: _Statement, *, at_import: bool) -> PythonLoad:
    return PythonLoad(path=path, file=file, guarded=run.guarded, at_import=at_import and not run.asked)


def _names(text: str, path: str, file: str) -> bool:
    """Whether a text of a file means a library: by its file name, a pattern for it, or its name without the suffix."""
    name, library = posixpath.basename(text), posixpath.basename(path)
    if "*" in name:
        return "." in name and fnmatchcase(library, name)
    if name == library:
        return True
    # A bare name is that of a library in the folder of the file, or in one that this is in.
    return name == _stem(path) and f"{posixpath.dirname(file)}/".startswith(f"{posixpath.dirname(path)}/")


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0]


def _runs(tree: ast.Module) -> Iterator[_Statement]:
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
) -> Iterator[_Statement]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if not any(blocks):
            yield _Statement(statement, guarded, asked)
            for name in calls(statement):
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
        return goes_on(statement)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return suppresses(statement)
    return not isinstance(statement, ast.ClassDef)
