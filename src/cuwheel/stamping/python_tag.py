"""Another Python tag for a wheel whose libraries belong to no Python.

setuptools tags every wheel with a library for the Python that built it. Where the library is loaded with ctypes
(bitsandbytes), it serves all of them, and its publisher says so: `py3-none`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHAPE = re.compile(r"(?P<python>[a-z]{2,8}\d{1,4}(?:\.[a-z]{2,8}\d{1,4})*)-(?P<abi>none|abi3)", re.ASCII)
_EXTENSION = re.compile(r"\.(?:cpython-\d+[^/]*|cp\d+-[^/]*)\.(?:so|pyd)$", re.ASCII)

_STABLE = re.compile(r"\.abi3\.(?:so|pyd)$", re.ASCII)


def parts(tag: str) -> tuple[str, str]:
    """`py3-none` → its two parts."""
    match = _SHAPE.fullmatch(tag)
    if match is None:
        raise UsageError(f"python-tag = {tag!r}: not a Python and an ABI", hint='such as "py3-none" or "cp310-abi3"')
    return match["python"], match["abi"]


def must_fit(members: Iterable[str], tag: str) -> None:
    """A module of one Python's own ABI serves no other, whatever the tag says."""
    stable = parts(tag)[1] == "abi3"
    bound = sorted(each for each in members if _EXTENSION.search(each) or (not stable and _STABLE.search(each)))
    if bound:
        raise UsageError(
            f"python-tag = {tag!r}: {bound[0]} is an extension module for CPython",
            hint="leave python-tag out: the build backend knows",
        )
