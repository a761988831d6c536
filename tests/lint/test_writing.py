"""Foreign text has one way out: streams, Markdown and XML are written by few modules, through `printable`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import cuwheel

if TYPE_CHECKING:
    from collections.abc import Iterator

SRC = Path(cuwheel.__file__).parent
LAB = SRC.parents[1] / "lab" / "src" / "cuwheel_lab"
CORE = SRC.parents[1] / "core" / "src" / "cuwheel_core"
# Who writes to a stream that a person or a service reads, each time through `printable` or nothing but own words.
WRITERS = ("cli/streams.py", "report/terminal.py", "support/log.py", "proving/onsite/main.py")
OF_CORE = ("__main__.py",)
# Programs of their own, whose stream another of our programs reads.
ASKED = (
    *("device_code/demangle.py", "changes/binaries/device_link_call.py", "machine/nvml.py"),
    *("measuring/programs/caller.py", "measuring/programs/gpu_sampler.py"),
    *("proving/onsite/compare.py", "clusters/child.py"),
)
# In the user's own program, with words that were made when it was written; and `--version`.
OWN_WORDS = ("changes/slim/workload_guard.py", "cli/__init__.py")
WRITE = re.compile(r"(sys\.(__)?std(out|err)(__)?|stream|console)(\.buffer)?\.(write|writelines|print)|print|pprint")
TRACEBACKS = re.compile(r"traceback\.print_\w+|warnings\.showwarning|sys\.excepthook")
# Signs of Markdown and services are escaped in one module.
ESCAPES = re.compile(r"&lt;|&amp;|%0A|&#\d+;|##\[")
ESCAPED_IN = ("support/printable.py",)


def writes(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each call that writes to a stream: its line, what is called, and whether its words are safe."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and WRITE.fullmatch(called := ast.unparse(node.func)):
            words = [ast.unparse(each) for each in node.args]
            own = all(_is_own(part) for each in node.args for part in _parts(each))
            yield node.lineno, called, own or all("printable." in each for each in words)
        elif isinstance(node, ast.Attribute) and TRACEBACKS.fullmatch(called := ast.unparse(node)):
            yield node.lineno, called, False


def _is_own(node: ast.expr) -> bool:
    """A literal, or the name of a constant."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.strip("_").isupper())


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [*_parts(node.left), *_parts(node.right)]
    return [node]


def test_few_modules_write_to_streams() -> None:
    found = [
        f"{name}:{line} {called}"
        for house in (SRC, LAB, CORE)
        for path in sorted(house.rglob("*.py"))
        if (name := path.relative_to(house).as_posix()) not in (*WRITERS, *OF_CORE, *ASKED, *OWN_WORDS)
        for line, called, _safe in writes(path.read_text("utf-8"))
    ]
    assert found == []


def test_they_make_it_printable() -> None:
    places = [*(SRC / name for name in WRITERS), *(CORE / name for name in OF_CORE)]
    found = {path.as_posix(): list(writes(path.read_text("utf-8"))) for path in places}
    assert all(found.values())
    written = [(name, *each) for name, calls in found.items() for each in calls]
    # What rich is told to print is captured, and written once more.
    assert [name for name, _, called, safe in written if not safe and called != "console.print"] == []


def test_texts_are_escaped_in_one_place() -> None:
    houses = (SRC, CORE)
    found = [
        (house, path) for house in houses for path in house.rglob("*.py") if ESCAPES.search(path.read_text("utf-8"))
    ]
    assert sorted(path.relative_to(house).as_posix() for house, path in found) == sorted(ESCAPED_IN)


def test_the_check_itself_can_fail() -> None:
    assert [safe for _, _, safe in writes("sys.stderr.write(f'error: {path}\\n')")] == [False]
    assert [safe for _, _, safe in writes("print(name)")] == [False]
    assert [safe for _, _, safe in writes("sys.stderr.write('interrupted\\n')")] == [True]
    assert [safe for _, _, safe in writes("sys.stdout.write(printable.output(text))")] == [True]
