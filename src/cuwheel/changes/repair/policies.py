"""What a platform tag promises, by auditwheel's and delvewheel's data. Their code is not used: it changes."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import ToolError, UsageError
from cuwheel.support import codec, process
from cuwheel_core.facts import versions
from cuwheel_core.wheel.tags import machine_name, platform_of

if TYPE_CHECKING:
    from cuwheel_core.wheel.tags import WheelName

_FILE = "policy/manylinux-policy.json"
_INSTALL = "pip install --upgrade auditwheel"
_DELVEWHEEL = "pip install --upgrade delvewheel"


class _Row(Struct, frozen=True, kw_only=True):
    name: str
    aliases: tuple[str, ...]
    symbol_versions: dict[str, dict[str, tuple[str, ...]]]
    lib_whitelist: tuple[str, ...]
    blacklist: dict[str, tuple[str, ...]]


class Policy(Struct, frozen=True, kw_only=True):
    """`system`: the libraries that every such machine has; `forbidden`: symbols of them that not all have."""

    name: str
    aliases: tuple[str, ...]
    glibc: str
    versions: Mapping[str, frozenset[str]]
    system: frozenset[str]
    forbidden: Mapping[str, frozenset[str]]
    patterns: tuple[str, ...] = ()  # expressions for more of them

    def platforms(self, machine: str) -> tuple[str, ...]:
        """Platform tags as auditwheel orders them in a file name."""
        return tuple(sorted(f"{each}_{machine}" for each in (self.name, *self.aliases)))

    def lacks(self, wanted: Iterable[str]) -> Iterator[str]:
        """The symbol versions (GLIBC_2.34) that it does not promise."""
        for each in wanted:
            family, _, version = each.partition("_")
            if family in self.versions and version not in self.versions[family]:
                yield each


def is_from_system(soname: str, policy: Policy) -> bool:
    if soname in policy.system or soname.startswith(("ld-linux", "ld64.so")):
        return True
    return any(re.fullmatch(each, soname) for each in policy.patterns)


def windows(wheel: WheelName, machine: str) -> Policy:
    """What Windows and the Pythons of a wheel bring: delvewheel's lists."""
    process.require_extra("repairing a wheel", modules=["delvewheel"])
    lists = importlib.import_module("delvewheel._dll_list")
    try:
        kind = {each.name: each for each in lists.MachineType}[machine_name("windows", machine)]
        names = frozenset(lists.ignore_names[kind])
        patterns = tuple(sorted(each.pattern for each in lists.ignore_regexes))
        rows = (lists.ignore_abi3, lists.ignore_by_abi_platform)
    except (AttributeError, KeyError) as error:
        raise ToolError(["delvewheel"], f"has other lists than are known: {error}", hint=_DELVEWHEEL) from error
    stable = set(wheel.abi.split(".")) <= {"abi3", "abi3t"}
    tags = [f"{tag}-{wheel.platform}" for tag in (wheel.python if stable else wheel.abi).split(".")]
    brought = [_brought(tag, rows[0] if stable else rows[1]) for tag in tags]
    return Policy(
        name="Windows",
        aliases=(),
        glibc="0",
        versions={},
        system=names | frozenset.intersection(*brought),
        forbidden={},
        patterns=patterns,
    )


def _brought(tag: str, rows: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """What comes with a Python, by its tag and the platform."""
    return next((frozenset(each) for pattern, each in rows.items() if re.fullmatch(pattern, tag)), frozenset())


@cache
def policies(machine: str) -> tuple[Policy, ...]:
    """All policies for a machine, the oldest first."""
    found = [_policy(row, machine) for row in _rows() if _glibc(row.name) and machine in row.symbol_versions]
    return tuple(sorted(found, key=lambda each: versions.key(each.glibc)))


def find(name: str, machine: str) -> Policy:
    """A policy by any of its names, with or without the machine."""
    known = policies(machine)
    plain = name.removesuffix(f"_{machine}")
    for each in known:
        if plain in (each.name, *each.aliases):
            return each
    if name.startswith(("musllinux", "linux")):
        raise UsageError(f"{name}: NVIDIA's libraries are made for glibc", hint=f"such as {known[-1].name}")
    others = ", ".join(each.name for each in known)
    raise UsageError(f"auditwheel knows no policy {name!r} for {machine}", hint=f"one of {others}")


def _policy(row: _Row, machine: str) -> Policy:
    return Policy(
        name=row.name,
        aliases=row.aliases,
        glibc=_glibc(row.name) or "0",
        versions={family: frozenset(each) for family, each in row.symbol_versions[machine].items()},
        system=frozenset(row.lib_whitelist),
        forbidden={soname: frozenset(each) for soname, each in row.blacklist.items()},
    )


def _glibc(name: str) -> str | None:
    """The glibc that a policy is for; None for one of another C library, or of none."""
    return platform_of(f"{name}_any").glibc


@cache
def _rows() -> tuple[_Row, ...]:
    if sys.platform != "linux":
        raise ToolError(["auditwheel"], "runs on Linux alone", hint="repair the wheel on Linux, or in a container")
    process.require_extra("repairing a wheel", modules=["auditwheel"])
    spec = importlib.util.find_spec("auditwheel")
    path = Path((spec and spec.origin) or "").parent / _FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ToolError(["auditwheel"], f"has no policies in {path}", hint=_INSTALL) from error
    return codec.parse(data, tuple[_Row, ...], path, "a table of a known version of auditwheel", hint=_INSTALL)
