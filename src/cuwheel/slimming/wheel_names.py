"""What a slimmed wheel is called: its version, its file, and the folders inside that carry the version."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cuwheel.errors import MalformedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.inspection.values import Survey

_LABEL = "slim"
_NUMBERED = re.compile(rf"(?P<rest>.*[+.]{_LABEL})(?:\.(?P<number>\d+))?")
_NAMEABLE = re.compile(r"[A-Za-z0-9._+!-]{1,128}")  # what may stand in the name of a file
_PARTS, _PARTS_WITH_BUILD = 5, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """`info` and `new_info` end in a slash."""

    file_name: str
    old_version: str
    version: str
    info: str
    new_info: str

    def renamed(self, member: str) -> str:
        """The member's name in the new wheel."""
        for old, new in ((self.info, self.new_info), (self._data(self.info), self._data(self.new_info))):
            if member.startswith(old):
                return new + member.removeprefix(old)
        return member

    def _data(self, info: str) -> str:
        return info.removesuffix(".dist-info/") + ".data/"


def names_of(path: Path, found: Survey, version: str | None) -> Names:
    """`version`: the one asked for; else the wheel's own with a local label. Raises where this is no sound wheel."""
    bad = [each.message for each in found.findings if each.rule.startswith("zip-") or each.rule == "wheel-incomplete"]
    told = found.distribution
    parts = path.name.removesuffix(".whl").split("-")
    if bad or told is None or not told.version or len(parts) not in (_PARTS, _PARTS_WITH_BUILD):
        problem = "; ".join(bad[:3]) or "its file name is not that of a wheel"
        raise MalformedError(path, f"not slimmed: {problem}", hint="get the wheel from its publisher again")
    if not _NAMEABLE.fullmatch(told.version):
        raise MalformedError(
            path, f"not slimmed: {told.version!r} is not a version", hint="get the wheel from its publisher again"
        )
    new = _asked_for(version) if version else labelled(told.version)
    spelt = new.replace("-", "_")
    info = _info(path)
    name = info.removesuffix(".dist-info/").rpartition("-")[0]
    return Names(
        file_name="-".join([parts[0], spelt, *parts[2:]]) + ".whl",
        old_version=told.version,
        version=new,
        info=info,
        new_info=f"{name}-{spelt}.dist-info/",
    )


def _info(path: Path) -> str:
    """The folder inside; not every wheel spells it as its file name."""
    with zipfile.ZipFile(path) as archive:
        found = (each for each in archive.namelist() if each.count("/") == 1 and each.endswith(".dist-info/METADATA"))
        return next(found).removesuffix("METADATA")


def labelled(version: str) -> str:
    """`2.11.0+cu130` → `2.11.0+cu130.slim`, and `.slim.2` where it was slimmed before."""
    if match := _NUMBERED.fullmatch(version):
        return f"{match['rest']}.{int(match['number'] or 1) + 1}"
    return f"{version}{'.' if '+' in version else '+'}{_LABEL}"


def _asked_for(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise UsageError(f"--version {version}: {error}", hint="such as --version 2.11.0+h100") from error


def with_version(metadata: bytes, version: str) -> bytes:
    """METADATA with another version and not one other byte changed."""
    lines = metadata.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if not line.strip():
            break
        if line[:8].lower() == b"version:":
            end = line[len(line.rstrip(b"\r\n")) :]
            lines[index] = b"Version: " + version.encode() + end
            break
    return b"".join(lines)
