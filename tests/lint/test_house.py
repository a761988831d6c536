"""The house itself: small functions, no module that needs one which needs it, and an `api` that only puts in a row."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import cuwheel
import cuwheel_core
import cuwheel_lab
from cuwheel.support.verbs import VERBS

_SRC = Path(cuwheel.__file__).parent
_HOUSES = (_SRC, Path(cuwheel_core.__file__).parent, Path(cuwheel_lab.__file__).parent)
_LINES, _PARAMETERS = 80, 9
_API = 40 * len(VERBS)  # lines: imports, signatures, a sentence for each and the stages in a row
_WITH_ENCODING = {"read_text": 1, "write_text": 2}  # so many arguments
# The seam itself, files that a process has loaded, and what travels without the rest of the house.
_MAY_REPLACE = ("support/system_calls.py", "support/confined.py", "proving/runner/checks.py", "proving/onsite/main.py")


@cache
def _nodes() -> dict[str, list[ast.AST]]:
    """Of every module; they are parsed once for all tests."""
    paths = [(path, house) for house in _HOUSES for path in sorted(house.rglob("*.py"))]
    texts = {_name(path, house): path.read_text(encoding="utf-8") for path, house in paths}
    return {name: list(ast.walk(ast.parse(text))) for name, text in texts.items()}


def _name(path: Path, house: Path) -> str:
    """Below its package, whose name stands before it for the core and the lab."""
    return path.relative_to(house if house == _SRC else house.parent).as_posix()


def _functions() -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        f"{name}:{node.lineno} {node.name}": node
        for name, nodes in _nodes().items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """All kinds of them, but not the object that a method is of."""
    given = function.args
    plain = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(plain) + bool(given.vararg) + bool(given.kwarg) - (plain[:1] in (["self"], ["cls"]))


def test_functions_are_seen_on_one_screen() -> None:
    found = _functions()
    assert len(found) > 1000
    assert [name for name, each in found.items() if (each.end_lineno or 0) - each.lineno >= _LINES] == []


def test_functions_have_few_parameters() -> None:
    assert [name for name, each in _functions().items() if _parameters(each) > _PARAMETERS] == []


def test_files_take_their_names_where_windows_is_waited_for() -> None:
    """`Path.replace` has one argument and `str.replace` two: elsewhere it is `system_calls.rename_over`."""
    found = [
        f"{name}:{node.lineno}"
        for name, nodes in _nodes().items()
        if name not in _MAY_REPLACE
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
        if ast.unparse(node.func) == "os.replace" or (len(node.args) == 1 and not node.keywords)
    ]
    assert found == []


def test_texts_have_an_encoding() -> None:
    """On Windows the default is the code page of the user."""
    found = [
        f"{name}:{node.lineno}"
        for name, nodes in _nodes().items()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in _WITH_ENCODING
        if len(node.args) < _WITH_ENCODING[node.func.attr] and "encoding" not in {each.arg for each in node.keywords}
    ]
    assert found == []


def test_values_are_decoded_in_one_place() -> None:
    """Elsewhere nothing describes a type before threads decode it, and the process may end by SIGSEGV."""
    calls = re.compile(r"msgspec\.(convert|(json|msgpack|yaml)\.(decode|Decoder))$")
    found = [
        f"{name}:{node.lineno}"
        for name, nodes in _nodes().items()
        if name not in ("support/codec.py", "cuwheel_core/support/structs.py")
        for node in nodes
        if isinstance(node, ast.Attribute) and calls.match(ast.unparse(node))
    ]
    assert found == []


# Calls of int and float on what is no text: C's numbers, Python's own, what a library of others returns. By the call.
_NOT_TEXT = {
    *("float(column)", "float(row)", "float(count)", "float(wheel.size)", "float(candidate.listing.size or 0)"),
    *("int(at)", "int(name_size)", "int(extra_size)", "int(own)", "int(torch)", "int(info.mtime)", "int(bool(item))"),
    "int(failing or any((found.lacking(each) for each in found.devices)))",
    *("int(self._value)", "float(self._value)", "int(event['began'])"),
    *("int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)", "int(much)"),
    "int(declared.get(CORES, worker.state.nthreads))",
    "int(declared.get(MEMORY, worker.memory_manager.memory_limit or _MEMORY))",
    *("int(each.name)", "float(match[1])", "int(float(match[1]) * (1024 if match[3] else 1000) ** power)"),
}  # fmt: skip
# What travels without the rest of the house: it reads what cuwheel itself wrote, and says what it cannot read.
_TRAVELS = (
    *("support/limited.py", "cuwheel_core/support/bounded.py"),  # the reader itself
    *("proving/onsite/", "proving/runner/", "cuwheel_lab/measuring/programs/"),
    "cuwheel_core/wheel/tags.py",  # whose patterns take three digits at most
)
_OF_PACKAGING = {
    *("Version", "Specifier", "SpecifierSet", "Requirement", "Marker", "parse_version", "parse_wheel_filename"),
    "parse_sdist_filename",
}


def _is_number_of_text(node: ast.Call) -> bool:
    """A call of int or float on what may be a text: no sum, no comparison, no constant, and no row of bits."""
    called = ast.unparse(node.func)
    if called == "map":
        return bool(node.args) and ast.unparse(node.args[0]) in ("int", "float")
    plain = len(node.args) == 1 and not isinstance(node.args[0], ast.BinOp | ast.Compare | ast.Constant)
    return called in ("int", "float") and plain and ast.unparse(node) not in _NOT_TEXT


def test_strangers_numbers_and_versions_pass_one_reader() -> None:
    """Of five thousand digits int and packaging raise what nobody expects; support/limited.py does not."""
    found = []
    for name, nodes in _nodes().items():
        if name.startswith(_TRAVELS):
            continue
        packaged = {
            each.asname or each.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("packaging")
            for each in node.names
        } & _OF_PACKAGING
        found += [
            f"{name}:{node.lineno} {ast.unparse(node)[:80]}"
            for node in nodes
            if isinstance(node, ast.Call) and (ast.unparse(node.func) in packaged or _is_number_of_text(node))
        ]
    assert found == []


def test_names_and_tags_are_read_in_one_place() -> None:
    """Spellings of processors, old names of manylinux, separators of projects: all in the core's `wheel/tags.py`."""
    words = {"AMD64", "amd64", "ARM64", "i386", "i686", "ppc64le", "win_amd64", "manylinux2014", "[-_.]+"}
    imported = {"canonicalize_name", "parse_wheel_filename"}
    found = {
        f"{name}: {node.value!r}" if isinstance(node, ast.Constant) else f"{name}: {node.name}"
        for name, nodes in _nodes().items()
        if name not in ("cuwheel_core/wheel/tags.py", "support/limited.py")
        for node in nodes
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in words)
        or (isinstance(node, ast.alias) and node.name in imported)
    }
    assert found == set()


def test_no_module_needs_one_that_needs_it() -> None:
    """Imports for type checkers count too: who reads one module of a circle has to read all."""
    graph = grimp.build_graph("cuwheel", exclude_type_checking_imports=False, cache_dir=None)
    needed = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(needed) > 300
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_api_holds_no_logic() -> None:
    assert sum(len(path.read_text().splitlines()) for path in (_SRC / "api").glob("*.py")) < _API


def test_the_rooms_are_drawn_in_the_order_that_is_checked() -> None:
    root = _SRC.parents[1]
    layers = re.search(r"\nlayers = \[\n(.*?)\n\]", (root / "pyproject.toml").read_text(), re.DOTALL)
    drawn = (root / "docs" / "why" / "architecture.md").read_text().partition("## The rooms")[2].partition("\n## ")[0]
    assert layers
    rows = [line for line in drawn.splitlines() if line.startswith("    ")]
    before = 0
    for layer in layers[1].splitlines()[::-1]:
        if not (rooms := re.findall(r"cuwheel\.(\w+)", layer)):  # the core, which has a list of its own
            continue
        found = [number for each in rooms for number, row in enumerate(rows) if re.search(rf"\s{each}(/|\s|$)", row)]
        assert len(found) >= len(rooms), f"not drawn: one of {rooms}"
        assert before <= min(found), f"too high: {rooms}"
        before = min(found)
