"""Wheels on their way into an environment, without the device code that its GPUs never load."""

from __future__ import annotations

from dataclasses import replace  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.slim import targets
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.delivery import environment_changes
from cuwheel.errors import UsageError
from cuwheel.network.resolver import Release
from cuwheel.support import log
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.machine.fleet import Machine

_LICENCE = "licence-on-changes"


class Slimmed(Struct, frozen=True, kw_only=True):
    """Bytes of the wheel's file."""

    file: str
    bytes_before: int
    bytes_after: int


class Result(Struct, frozen=True, kw_only=True):
    """`releases`: the same, those that were cut as files of this machine."""

    releases: tuple[Release, ...]
    slimmed: tuple[Slimmed, ...]
    findings: tuple[Finding, ...]


def must_know_gpus(machines: Sequence[Machine]) -> None:
    if unknown := [each.name for each in machines if each.capability is None]:
        raise UsageError(
            f"--slim needs a GPU, and that of {', '.join(unknown)} is not known", hint="name it: --on h100"
        )


def slim(releases: Sequence[Release], machines: Sequence[Machine], scratch: Path) -> Result:
    """Version and file name stay: RECORD and a note in the wheel say what was cut."""
    made: list[Release] = []
    slimmed: list[Slimmed] = []
    findings: list[Finding] = []
    for release in releases:
        path = environment_changes.on_disk(release, scratch)
        with WheelFile(path) as wheel:
            version = wheel.distribution.version
        asked = SlimRequest(path, machines=list(machines), output=scratch / "slimmed", version=version)
        with log.progress(f"slimming {path.name}"):
            done = targets.slim(asked).outcome
        findings += [each for each in done.findings if each.severity == "error" or each.rule == _LICENCE]
        if not done.written or done.output is None or done.wheel is None:
            made.append(replace(release, url=path.as_uri()))
            continue
        log.info("%s: %s, was %s", path.name, size(done.wheel.bytes_after), size(done.wheel.bytes_before))
        new = Path(done.output)
        made.append(
            replace(release, url=new.absolute().as_uri(), file=new.name, sha256=None, size=done.wheel.bytes_after)
        )
        slimmed.append(
            Slimmed(file=release.file, bytes_before=done.wheel.bytes_before, bytes_after=done.wheel.bytes_after)
        )
    return Result(releases=tuple(made), slimmed=tuple(slimmed), findings=tuple(dict.fromkeys(findings)))
