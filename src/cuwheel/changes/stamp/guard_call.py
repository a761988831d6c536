"""A call put into somebody else's package: as early in its `__init__.py` as Python allows."""

from __future__ import annotations

import ast
import codecs
import warnings
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

from cuwheel.errors import MalformedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MODULE = "_cuwheel_guard"


class Call(NamedTuple):
    """Of a module that was put beside. `line`: one, so that it can stand behind a semicolon; nothing of it stays.

    `hint`: what to do where it cannot be put in.
    """

    module: str
    line: str
    why: str
    hint: str


GUARD = Call(
    module=MODULE,
    line=f"from .{MODULE} import check as _cuwheel_check; _cuwheel_check(); del _cuwheel_check",
    why='put here by cuwheel build: guard = "inject"',
    hint="leave guard out",
)


def package_of(packages: Collection[str], distribution: str, libraries: Iterable[str]) -> str:
    """Of the packages at the top of a wheel, the one to guard.

    Where there are several: the one of the wheel's own name, else the one that holds the libraries with device code.
    """
    if len(packages) == 1:
        return next(iter(packages))
    named = [each for each in packages if canonicalize_name(each) == canonicalize_name(distribution)]
    holding = {path.partition("/")[0] for path in libraries} & set(packages)
    for found in (named, sorted(holding)):
        if len(found) == 1:
            return found[0]
    raise UsageError(
        'guard = "inject": the wheel has no package to guard'
        if not packages
        else f'guard = "inject": which of {", ".join(sorted(packages))} should be guarded?',
        hint='name it: [tool.cuwheel.guard] inject = true, package = "NAME"',
    )


def with_call(source: bytes, name: str, call: Call = GUARD) -> bytes:
    """`source`: of an `__init__.py`, called `name` in messages. Unchanged where it has the call already."""
    if call.module.encode() in source:
        return source
    body = _parsed(source, name, call).body
    put = f"{call.line}  # {call.why}".encode()
    start = len(_prelude(body))
    lines = source.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    if start and _goes_on(lines, body[start - 1]):
        line, column = body[start - 1].end_lineno or 1, body[start - 1].end_col_offset or 0
        old = lines[line - 1]
        lines[line - 1] = old[:column] + b"; " + call.line.encode() + old[column:]
        return b"".join(lines)
    head = b"".join(lines[: _line_above(body, start, len(lines))])
    if not head and source.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8 + put + end + source.removeprefix(codecs.BOM_UTF8)
    gap = end if head and not head.endswith((b"\n", b"\r")) else b""
    return head + gap + put + end + source[len(head) :]


def _parsed(source: bytes, name: str, call: Call) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of somebody else's escapes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError(
            name,
            f"cannot be read as Python, so the call of {call.module} cannot be put into it: {error}",
            hint=call.hint,
        ) from error


def _prelude(body: list[ast.stmt]) -> list[ast.stmt]:
    """The docstring and the imports from `__future__`: nothing may come before those."""
    docstring = ast.get_docstring(ast.Module(body=body[:1], type_ignores=[]), clean=False)
    found = body[:1] if docstring is not None else []
    for each in body[len(found) :]:
        if not (isinstance(each, ast.ImportFrom) and each.module == "__future__" and each.level == 0):
            break
        found = [*found, each]
    return found


def _goes_on(lines: list[bytes], last: ast.stmt) -> bool:
    """Whether something stands behind it in its own line, after a semicolon."""
    rest = lines[(last.end_lineno or 1) - 1][last.end_col_offset or 0 :]
    return rest.lstrip().startswith(b";")


def _line_above(body: list[ast.stmt], prelude: int, lines: int) -> int:
    """How many lines stay above the call. The comments at the top do: one of them may name the encoding."""
    if prelude:
        return body[prelude - 1].end_lineno or 0
    if not body:
        return lines
    decorators: list[ast.expr] = getattr(body[0], "decorator_list", [])
    return min([body[0].lineno, *(each.lineno for each in decorators)]) - 1
