"""A wheel, opened once a run: its members, what it says of itself, and what is wrong with it. Nothing is unpacked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from cuwheel.errors import UsageError
from cuwheel.support import log
from cuwheel.wheel import record
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import Distribution, record_rows
from cuwheel_core.wheel.tags import WheelName, plain_name
from cuwheel_core.wheel.zip_reader import Member, ZipReader

if TYPE_CHECKING:
    from typing_extensions import Self

    from cuwheel.wheel.record import Digest
    from cuwheel_core.support.buffer import Buffer
    from cuwheel_core.support.finding import Finding


# The files of a wheel against the hashes that its RECORD has of them. Nothing is unpacked to disk.

# What RECORD may be signed with (PEP 427: sha256 or better); Python has more under these names than wheels use.
ALGORITHMS = ("sha256", "sha384", "sha512")
_WEAK = ("md5", "sha1", "sha224")  # nobody may rely on these, but what they say must be true too


class Compared(NamedTuple):
    """`wrong`: files with another hash. `broken`: those that cannot be read, and why."""

    wrong: frozenset[str]
    broken: dict[str, str]


def is_strong(text: str) -> bool:
    """`sha256=…` and its like."""
    return text.partition("=")[0] in ALGORITHMS


def compare_hashes(wheel: WheelFile, listed: Mapping[str, str]) -> Compared:
    """`listed`: members, and their hashes as RECORD writes them; a hash of a kind that nobody knows is wrong."""
    split = {name: text.partition("=") for name, text in listed.items()}
    wanted = {name: parts for name, parts in split.items() if parts[0] in (*ALGORITHMS, *_WEAK)}
    differing = split.keys() - wanted.keys()
    broken: dict[str, str] = {}
    with log.progress("hashing", sum(wheel.sizes.get(name, 0) for name in wanted)) as progress:
        for name, (algorithm, _, encoded) in wanted.items():
            member = wheel.members.get(name)
            if member is None:
                broken[name] = "it is not in the wheel"
                continue
            hasher = hashlib.new(algorithm, usedforsecurity=False)
            try:
                for chunk in wheel.zip.chunks(member):
                    hasher.update(chunk)
                    progress.advance(len(chunk))
            except MalformedError as error:
                broken[name] = error.problem
                continue
            if hasher.digest() != _decoded(encoded):
                differing.add(name)
    return Compared(frozenset(differing), broken)


def _decoded(encoded: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""


INFO, DATA = ".dist-info", ".data"


class WheelFile:
    """Raises if it is not a zip file, or one that was made to do harm."""

    def __init__(self, path: Path, source: Buffer | None = None) -> None:
        """`source`: its bytes, where they are not in a file at `path`; closed with the wheel."""
        self.path = path
        self.zip = ZipReader(path, source)
        self.name = WheelName.parse(path.name)
        tops = dict.fromkeys(each.partition("/")[0] + "/" for each in self.members if "/" in each)
        self.infos = tuple(sorted(each for each in tops if each.endswith(f"{INFO}/")))
        described = [each for each in self.infos if f"{each}METADATA" in self.members]
        self.info = next(iter(described or self.infos), "")  # its dist-info folder, with a slash

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.zip.close()

    @property
    def members(self) -> Mapping[str, Member]:
        """Those that can be read, by their names; of the others there are findings."""
        return self.zip.members

    @property
    def size(self) -> int:
        return self.zip.source.size

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return {name: member.size for name, member in self.members.items()}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Members that cannot be read, and why; what it says of itself is read for it."""
        _ = self.metadata, self.wheel, self.record
        return tuple(self.zip.findings)

    @cached_property
    def metadata(self) -> str | None:
        return self._own("METADATA")

    @cached_property
    def wheel(self) -> str | None:
        return self._own("WHEEL")

    @cached_property
    def record(self) -> str | None:
        return self._own("RECORD")

    @cached_property
    def top_level(self) -> str | None:
        return self._own("top_level.txt")

    @cached_property
    def distribution(self) -> Distribution:
        """What it says of itself, and its file name where it says nothing."""
        return metadata.from_texts(self.metadata or "", self.wheel or "", self.name)

    def text(self, member: str) -> str | None:
        return self.zip.text(member)

    def read(self, member: str) -> bytes:
        return self.zip.read(self.members[member])

    def copy_to(self, member: str, file: BinaryIO) -> None:
        file.writelines(self.zip.chunks(self.members[member]))

    def digest(self, member: str) -> Digest:
        return record.digest_of_chunks(self.zip.chunks(self.members[member]))

    @cached_property
    def unlisted(self) -> frozenset[str]:
        """What is in RECORD or in the wheel alone; it need not list itself, nor what it is signed with."""
        listed = set(metadata.recorded_files(self.record or ""))
        own = {self.info + each for each in ("RECORD", *record.SIGNATURES)}
        return frozenset((listed ^ self.members.keys()) - own)

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(self.info + each for each in record.SIGNATURES if self.info + each in self.members)

    def wrong_hashes(self) -> list[str]:
        """The files that are not what RECORD says of them, or cannot be unpacked."""
        every = tuple(record_rows(self.record or ""))
        rows = [row for row in every if row.path in self.members]
        listed = {row.path: row.hash for row in rows if row.hash}
        # What RECORD has no hash of has the checksum of the zip.
        unlisted = dict.fromkeys((name for name in self.members if name not in listed), f"{ALGORITHMS[0]}=")
        found, unpacked = compare_hashes(self, listed), compare_hashes(self, unlisted)
        sizes = {row.path for row in rows if row.size and row.size != str(self.sizes[row.path])}
        lost = {row.path for row in every if is_strong(row.hash)} - self.members.keys()
        return sorted({*found.wrong, *found.broken, *unpacked.broken, *sizes, *lost})

    def must_be_sound(self, done: str) -> None:
        """Before something is made of it. `done`: what is not going to be done to it, such as "slimmed"."""
        if problems := list(self._problems()):
            raise MalformedError(
                self.path, f"not {done}: {'; '.join(problems[:3])}", hint="build the wheel again, or download it again"
            )

    def _problems(self) -> Iterator[str]:
        if self.name is None:
            yield "its file name is not that of a wheel"
        yield from (each.message for each in self.findings)
        if len(self.infos) != 1:
            yield f"it has {len(self.infos) or 'no'} dist-info {'folders' if self.infos else 'folder'}"
            return
        if missing := [each for each in ("METADATA", "WHEEL", "RECORD") if self.info + each not in self.members]:
            yield f"it has no {', '.join(missing)}"
        elif not self.header("name") or not self.header("version"):
            yield "its METADATA has no name or no version"

    def header(self, field: str) -> str | None:
        """The first of a field of METADATA, named in small letters."""
        return next((value for key, value in metadata.fields(self.metadata or "") if key == field), None)

    def _own(self, name: str) -> str | None:
        return self.text(self.info + name) if self.info else None


# Where the members of a wheel are installed: `foo-1.0.data/platlib/foo/x.so` lies in site-packages as `foo/x.so`.

_SITE_PACKAGES = ("platlib", "purelib")


def installed_path(member: str) -> str | None:
    """Below site-packages; None for what is installed elsewhere (scripts, headers, data)."""
    top, _, rest = member.partition("/")
    if not top.endswith(DATA):
        return member
    scheme, _, path = rest.partition("/")
    return path if scheme in _SITE_PACKAGES and path else None


def installed_names(members: Iterable[str]) -> dict[str, str]:
    """Each member's place in site-packages, of those that belong to the package itself."""
    placed = {each: installed_path(each) for each in members if not each.partition("/")[0].endswith(INFO)}
    return {member: place for member, place in placed.items() if place is not None}


def environment_path(member: str) -> str | None:
    """Where a member of the data folder goes below the environment, as on Linux; None for what lies in site-packages
    or, as headers, in a folder of the package's own.
    """
    top, _, rest = member.partition("/")
    scheme, _, path = rest.partition("/")
    if not top.endswith(DATA) or not path:
        return None
    return {"scripts": f"bin/{path}", "data": path}.get(scheme)


def top_packages(members: Iterable[str]) -> list[str]:
    """Those at the top, as they are imported."""
    folders = (installed_path(each) for each in members if each.endswith("/__init__.py"))
    tops = (each.removesuffix("/__init__.py") for each in folders if each)
    return sorted({each for each in tops if "/" not in each})


def package_folder(members: Iterable[str], package: str) -> str | None:
    """The folder in the wheel where a package's files are, with a slash at the end."""
    wanted = package.replace(".", "/") + "/__init__.py"
    found = next((each for each in members if each.endswith("/__init__.py") and installed_path(each) == wanted), None)
    return found.removesuffix("__init__.py") if found else None


def output_of(wanted: Path, name: str, inputs: Iterable[Path]) -> Path:
    """The file to write: `wanted` is a folder, or the file under its right name."""
    output = wanted if wanted.suffix == ".whl" else wanted / name
    if output.name != name:
        raise UsageError(
            f"{output.name} is not the right name for this wheel",
            hint=f"-o {output.with_name(name)}   (installers refuse others; --version sets the version)",
        )
    if output.exists() and any(output.samefile(each) for each in inputs):
        raise UsageError(f"{output} is the input wheel itself", hint="choose another folder with -o")
    return output


# A variant wheel for tools that take no label in its name: pip, auditwheel, and uv where a path is given.


def unlabelled(wheel: Path, folder: Path) -> Path:
    """The same file under its plain name in `folder`, which is made for it; a plain wheel itself."""
    name = plain_name(wheel.name)
    if name == wheel.name:
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    try:
        place.symlink_to(wheel.absolute())
    except OSError:  # not every system lets everybody
        shutil.copyfile(wheel, place)
    return place
