"""A requirements.txt as pip reads it: what it asks for by name, and all else, which is passed on as it stands."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace  # noqa: TID251 - of its own dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.requirements import InvalidRequirement

from cuwheel.errors import ConfigurationError
from cuwheel.network import resolver
from cuwheel.support import files, limited
from cuwheel_core.wheel.metadata import MOST_REQUIREMENTS
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.request import InstallRequest

_LARGEST = 1 << 22
_DEEPEST = 10
_LONGEST = 10_000
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}", re.ASCII)
# One blank, not all before it: of a line of a million blanks every one would be a start.
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"\s--hash[=\s]\S+")
_SPLIT = "split the file, and install one part after the other"
_HINT = "install what is not a package of an index with pip, before or after"
# Options with a value, as they are called here; those without one are True.
_PLACES = {"-i": "index", "--index-url": "index", "--extra-index-url": "extra", "-f": "links", "--find-links": "links"}
_FILES = {"-r": "requirement", "--requirement": "requirement", "-c": "constraint", "--constraint": "constraint"}
_PASSED = ("--only-binary", "--prefer-binary", "--require-hashes", "--trusted-host", "--use-feature")


class Line(Struct, frozen=True, kw_only=True):
    """`requirement`: by name alone, as it is judged; None for one with an address, whose name is `addressed`.

    `hashes`: as they are written. `name`: normalised, of one with a requirement.
    """

    text: str
    requirement: str | None
    addressed: str = ""
    hashes: str = ""
    name: str = ""


class RequirementsFile(Struct, frozen=True, kw_only=True):
    """`options`: lines for pip that are no requirements."""

    path: str
    lines: tuple[Line, ...]
    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    pre: bool = False
    options: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(each.requirement for each in self.lines if each.requirement)

    @property
    def addressed(self) -> set[str]:
        """Packages that somebody asked for by an address."""
        return {each.addressed for each in self.lines if each.addressed}

    def applied(self, request: InstallRequest) -> InstallRequest:
        """The request with the file's indexes, where nobody named others."""
        return replace(
            request,
            indexes=request.indexes or self.indexes,
            find_links=(*request.find_links, *self.find_links),
            no_index=request.no_index or self.no_index,
            pre=request.pre or self.pre,
        )

    def rest(self, names: Collection[str]) -> tuple[str, ...]:
        """All requirements of other packages than these."""
        return tuple(each.text for each in self.lines if each.name not in names)


def read_requirements(path: Path, python: str | None) -> RequirementsFile:
    """`python`: the version that conditions are about. Raises ConfigurationError with all problems at once."""
    reader = _Reader(python)
    reader.read(path)
    if not reader.lines and not reader.problems:
        reader.problems.append("it asks for nothing")
    if reader.problems:
        raise ConfigurationError(path, reader.problems, _HINT)
    return RequirementsFile(
        path=str(path),
        lines=tuple(reader.lines),
        indexes=_indexes(reader.places["index"], reader.places["extra"]),
        find_links=tuple(reader.places["links"]),
        no_index="--no-index" in reader.switches,
        pre="--pre" in reader.switches,
        options=tuple(reader.options),
    )


def _indexes(main: Sequence[str], extra: Sequence[str]) -> tuple[str, ...]:
    """Further ones alone come beside the public one."""
    if extra and not main:
        return (resolver.public_index(), *extra)
    return (*main[-1:], *extra)


class _Reader:
    def __init__(self, python: str | None) -> None:
        self.lines: list[Line] = []
        self.problems: list[str] = []
        self.options: list[str] = []
        self.switches: set[str] = set()
        self._lines = self._bytes = 0  # of all files together
        self._open: list[str] = []
        self.places: dict[str, list[str]] = {"index": [], "extra": [], "links": []}
        short = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python} if python else {}
        self._environment = {"extra": "", **short}

    def read(self, path: Path) -> None:
        place = os.path.realpath(path) if "\0" not in str(path) else str(path)
        if place in self._open or len(self._open) > _DEEPEST:
            self.problems.append(f"{path}: files that name one another")
            return
        text = files.read_limited(path, _LARGEST, "a requirements file")
        self._bytes += len(text)
        if self._bytes > _LARGEST:  # a file may be named by many, and by each line of them
            raise ConfigurationError(path, [f"all files together are more than {_LARGEST >> 20} MiB"], _SPLIT)
        self._open.append(place)
        for number, line in _logical(text.decode("utf-8", "replace")):
            self._lines += 1
            if self._lines > MOST_REQUIREMENTS:  # each may be a search of an index
                raise ConfigurationError(path, [f"it asks for more than {MOST_REQUIREMENTS:,} things"], _SPLIT)
            where = f"{path.name}, line {number}"
            if line.startswith("-"):
                self._option(line, where, path)
            else:
                self._requirement(line, where)
        self._open.pop()

    def _option(self, line: str, where: str, path: Path) -> None:
        if len(line) > _LONGEST:  # taking it apart takes time by the square of its length
            self.problems.append(
                f"{where}: an option of {len(line):,} letters, and not more than {_LONGEST:,} are read"
            )
            return
        try:
            words = shlex.split(line)
        except ValueError as error:
            self.problems.append(f"{where}: {error}")
            return
        name, _, value = words[0].partition("=") if words[0].startswith("--") else (words[0][:2], "", words[0][2:])
        value = value or (words[1] if len(words) > 1 else "")
        if name in _PLACES and value:
            place = value
            if _PLACES[name] == "links":
                with contextlib.suppress(OSError, ValueError):  # what no file can be called is no folder of links
                    place = str(path.parent / value) if (path.parent / value).exists() else value
            self.places[_PLACES[name]].append(place)
        elif name in _FILES and value:
            other = path.parent / value
            if _FILES[name] == "requirement":
                self.read(other)
            else:
                self._constraints(other)
                self.options.append(f"-c {shlex.quote(str(files.absolute(other)))}")
        elif name in ("--no-index", "--pre"):
            self.switches.add(name)
        elif name in _PASSED:
            self.options.append(line)
        elif name == "--no-binary":  # installers let it win over --only-binary, and run the source
            self.problems.append(f"{where}: {line[:80]}: only wheels are installed, and nothing is built")
        else:
            self.problems.append(f"{where}: {words[0]} is not taken from a requirements file")

    def _constraints(self, path: Path) -> None:
        """It is passed on as it stands: of what installers read in one, only versions are harmless."""
        text = files.read_limited(path, _LARGEST, "a constraints file").decode("utf-8", "replace")
        for number, line in _logical(text):
            if line.startswith("-"):
                self.problems.append(f"{path.name}, line {number}: {line[:80]!r}: only versions stand in constraints")

    def _requirement(self, line: str, where: str) -> None:
        hashes = "".join(_HASH.findall(line)).strip()
        text = _HASH.sub("", line).strip()
        try:
            found = limited.requirement(text)
        except InvalidRequirement:
            self.problems.append(f"{where}: {text[:80]!r} is not a package with versions")
            return
        if found.marker and not found.marker.evaluate(self._environment):
            return
        found.marker = None
        if found.url is None:
            self.lines.append(Line(text=line, requirement=str(found), hashes=hashes, name=normalised(found.name)))
        elif found.url.partition("#")[0].partition("?")[0].endswith(".whl"):
            self.lines.append(Line(text=line, requirement=None, addressed=normalised(found.name), hashes=hashes))
        else:
            self.problems.append(
                f"{where}: {found.name} comes as a source, whose code would run to install it: "
                "build it first (cuwheel build), and give its wheel"
            )


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without comments, variables filled in."""
    joined, began = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        began = began if joined else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            joined += line[:-1] + " "
            continue
        whole = _COMMENT.sub("", joined + line).strip()
        joined = ""
        if whole:
            yield began, _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), whole)
