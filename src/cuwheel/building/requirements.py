"""What a build needs of Python's packages: from the index, or exactly the files of a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field
from packaging.markers import default_environment
from packaging.utils import canonicalize_name

from cuwheel.building import variables
from cuwheel.building.shell import Shell
from cuwheel.building.values import Job
from cuwheel.errors import ToolError, UsageError
from cuwheel.facts import torch
from cuwheel.network import client, venvs
from cuwheel.toolchains import archives, downloads
from cuwheel.toolchains.downloads import Supply
from cuwheel.toolchains.toolchain import Archive
from cuwheel.wheel.requirements import checked, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

_OTHER_PLACES = ("UV_FIND_LINKS", "PIP_FIND_LINKS")


class Source(Struct, frozen=True, kw_only=True):
    """Where they come from. `kept`: as files that a lock can name; `locked`: those of a lock, and no others."""

    supply: Supply | None = None
    kept: bool = False
    locked: tuple[Archive, ...] | None = None


class Installer(Struct, kw_only=True):
    """Of one job: called once for what the project asks for, and once more for what its backend adds."""

    job: Job
    shell: Shell
    source: Source
    offline: bool
    wanted: set[str] = field(default_factory=set)
    used: tuple[Archive, ...] = ()

    def install(self, interpreter: Path, requirements: Iterable[str]) -> None:
        new = set(requirements) - self.wanted
        self.wanted |= new
        if not new:
            return
        self.shell.write(f"$ install {' '.join(sorted(new))}")
        if self.job.interpreter is None:  # inside of a container
            self.shell.run([str(interpreter), "-m", "pip", "install", *sorted(new)])
        elif self.source.locked is not None:
            self._from_lock(interpreter, self.source.locked)
        elif self.source.kept:
            self._files(interpreter, self._resolved())
        else:
            self._run(interpreter, sorted(new), index=True)

    def _resolved(self) -> tuple[Archive, ...]:
        python = self.job.python if self.job.python != venvs.find_python().minor else None
        return archives.resolve(sorted(self.wanted), offline=self.offline, python=python)

    def _from_lock(self, interpreter: Path, locked: tuple[Archive, ...]) -> None:
        if lacking := sorted(unmet(self.wanted, locked, self.job.python)):
            raise UsageError(
                f"the lock has no {', '.join(lacking)} for CUDA {self.job.cuda} and Python {self.job.python}",
                hint="write it again: cuwheel build --lock",
            )
        if not self.used:
            self._files(interpreter, archives.with_addresses(locked, offline=self.offline))

    def _files(self, interpreter: Path, wanted: Sequence[Archive]) -> None:
        if self.source.supply is None:
            return
        get = downloads.keep if self.source.kept else downloads.obtain
        files = list(get(wanted, self.source.supply))
        self._run(interpreter, files, index=False)
        self.used = tuple(wanted)

    def _run(self, interpreter: Path, wanted: Sequence[str | Path], *, index: bool) -> None:
        around = variables.without_leads(os.environ) | {variables.MARK: str(self.job.folder)}
        if not index:  # where others would be looked for may not be there any more, and is not asked
            around = {name: value for name, value in around.items() if name not in _OTHER_PLACES}
        offline = self.offline and index
        try:
            self.shell.write(
                venvs.install(
                    interpreter,
                    wanted,
                    index=index,
                    dependencies=index,
                    offline=offline,
                    timeout=self.shell.remaining_s,
                    env=around,
                )
            )
        except ToolError as error:
            self.shell.write(error.output)
            named = ", ".join(str(each) for each in wanted)
            if words := client.words_of_no_connection(error.output):
                raise client.NotReachableError(f"installing {named}", words, "index") from error
            hint = "are the index and its address right?"
            if offline:
                hint = "--offline uses what was downloaded before; a lock keeps it: cuwheel build --lock"
            raise ToolError(error.command, f"could not install {named}", error.output, hint) from error


def unmet(requirements: Iterable[str], there: Collection[Archive], python: str) -> set[str]:
    """Those that none of the files fulfils."""
    versions = {canonicalize_name(each.name): each.version for each in there}
    around = default_environment() | {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found = set()
    for text in requirements:
        each = checked(text)
        if each.marker and not each.marker.evaluate({name: str(value) for name, value in around.items()}):
            continue
        version = versions.get(canonicalize_name(each.name))
        if version is None or not each.specifier.contains(version, prereleases=True):
            found.add(text)
    return found


def torch_release(requirements: Iterable[str]) -> str | None:
    """The torch that they pin, or the newest that they allow; None where they set no limit."""
    found = (parse(each) for each in requirements)
    asked = [each.specifier for each in found if each and canonicalize_name(each.name) == "torch"]
    return next((release for each in asked if (release := torch.newest_within(each))), None)
