"""What an installer wrote over: pip and uv let a wheel bring files for any place in an environment.

By its data folder (`*.data/scripts`, `*.data/data`) a wheel reaches beyond site-packages, and inside of it any wheel
may write into another package's folder. RECORD says who brought what, the copy of the environment what was there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from cuwheel_core.wheel.metadata import distributions, read_info_file, record_rows, site_packages

# A path below the environment → who lists it, normalised, and the hash that RECORD has of it.
Claims: TypeAlias = Mapping[str, Mapping[str, str]]
_PACKAGES = ("site-packages/", "dist-packages/")
# Folders beside the packages that many bring by mistake, and nobody imports: whose they are does not matter.
_NOBODYS = frozenset(("benchmark", "benchmarks", "doc", "docs", "example", "examples", "test", "tests"))


class Overwritten(NamedTuple):
    """`by`: the distribution that brought it. `owner`: whose it is; empty for the environment itself."""

    path: str
    by: str
    owner: str


def as_compared(prefix: Path) -> Callable[[str], str]:
    """How two paths of an environment are told apart there: macOS and Windows take capitals for small letters."""
    return str.lower if prefix.with_name(prefix.name.swapcase()).exists() else str


def claims(prefix: Path) -> Claims:
    """All files that distributions say they installed into an environment, which is resolved."""
    found: dict[str, dict[str, str]] = {}
    root, compared = f"{prefix}{os.sep}", as_compared(prefix)
    for site in site_packages(prefix):
        folders: dict[str, str] = {}
        for each in distributions(site):
            for row in record_rows(read_info_file(each.info, "RECORD")):
                folder, _, name = row.path.rpartition("/")
                if (place := folders.get(folder)) is None:  # a link such as lib64 is another name of a folder
                    place = folders[folder] = os.path.realpath(site / folder)
                path = f"{place}{os.sep}{name}".removeprefix(root).replace(os.sep, "/")
                found.setdefault(compared(path), {})[each.name] = row.hash
    return found


def overwritten(
    before: Claims, now: Claims, names: Collection[str], is_other: Callable[[str], bool]
) -> Iterator[Overwritten]:
    """What the distributions `names`, which are new, wrote over: files of others, of the environment, and of each other
    where two bring one with two contents. `is_other`: whether a file was there and has other contents now.
    """
    for path, held in now.items():
        new = [name for name in held if name in names]
        old = before.get(path, {})
        if len({held[name] for name in new if held[name]}) > 1:
            yield Overwritten(path, new[0], new[1])
        elif new and not any(name in names for name in old) and "__pycache__" not in path and is_other(path):
            owner = next((name for name in (*old, *held) if name not in names), "")
            if owner or not _is_in_a_package(path):
                yield Overwritten(path, new[0], owner)


def _inside(path: str) -> str | None:
    """Below site-packages; None for what is elsewhere."""
    return next((path.partition(each)[2] for each in _PACKAGES if each in path), None)


def _is_in_a_package(path: str) -> bool:
    """In a folder that no distribution lists: left behind by one that was removed otherwise."""
    return "/" in (_inside(path) or "")


def is_nobodys(path: str) -> bool:
    """Whether it is in one of the folders that many packages bring by mistake."""
    return (_inside(path) or "").partition("/")[0].lower() in _NOBODYS
