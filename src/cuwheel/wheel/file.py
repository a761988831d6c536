"""A wheel, opened once a run: its members, what it says of itself, and what is wrong with it. Nothing is unpacked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError
from cuwheel.wheel import member_hashes, metadata, record
from cuwheel.wheel.name import WheelName
from cuwheel.wheel.zip_reader import ZipReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Self

    from cuwheel.support.buffer import Buffer
    from cuwheel.support.finding import Finding
    from cuwheel.wheel.metadata import Distribution
    from cuwheel.wheel.record import Digest
    from cuwheel.wheel.zip_reader import Member

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
        return member_hashes.wrong(self)

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
