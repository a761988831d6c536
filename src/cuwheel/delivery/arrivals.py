"""Wheels that are to be published: read once, put to the rules of `verify`, turned into what an index says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import attestations, channels, layout
from cuwheel.delivery.simple_api import Hashes, PublishedFile
from cuwheel.device_code import pinned, wheel_facts
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.proving import wheel_rules
from cuwheel.support import files
from cuwheel.support.finding import Finding
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel import variant
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.variant import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Arrival(Struct, frozen=True, kw_only=True):
    """A wheel, with the files that are going to stand beside it. `findings`: with an error among them it is refused.

    `provenance`: its attestations, empty where it has none. `variants`: what a variant wheel says of itself. `file`: as
    its project's page is to show it, without link and time; None where it cannot be published at all.
    """

    path: Path
    sha256: str = ""
    size: int = 0
    file: PublishedFile | None = None
    metadata: bytes = b""
    facts: bytes = b""
    provenance: bytes = b""
    variants: Document | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def refused(self) -> bool:
        return any(each.severity == "error" for each in self.findings)


def read_all(wheels: Sequence[str | Path], platform: str | None = None) -> list[Arrival]:
    """In the order of their names. The same file given twice is one."""
    found = [read(each) for each in paths(wheels, platform)]
    unique: dict[str, Arrival] = {}
    for each in found:
        other = unique.setdefault(each.name, each)
        if other.sha256 != each.sha256:
            unique[each.name] = replace(other, findings=(*other.findings, _two(other, each)))
    return list(unique.values())


def paths(wheels: Sequence[str | Path], platform: str | None = None) -> list[Path]:
    """Each once, in the order of their names."""
    found = {path.absolute() for wheel in wheels for path in _paths(wheel, platform)}
    return sorted(found, key=lambda each: (each.name, str(each)))


def _paths(wheel: str | Path, platform: str | None) -> Iterator[Path]:
    path = Path(pinned.on_disk(wheel, platform))
    if not path.is_dir():
        yield path
        return
    there = sorted(path.glob("*.whl"))
    if not there:
        raise UnreadableError(path, "there is no wheel in this folder", hint="cuwheel publish dist/*.whl --to index")
    yield from there


def read(path: Path) -> Arrival:
    """What is wrong with it is a finding, since the others are looked at too; but one that may do harm is an error."""
    if not path.is_file():
        raise UnreadableError(path, "no such file")
    if layout.wheel_name(path.name) is None:
        return Arrival(path=path, findings=(_not_a_wheel("its file name is not that of a wheel"),))
    sha256 = files.sha256(path)
    try:
        with WheelFile(path) as wheel:
            return _read(wheel, sha256)
    except MalformedError as error:
        return Arrival(path=path, sha256=sha256, findings=(_not_a_wheel(error.problem, error.hint),))


def _read(wheel: WheelFile, sha256: str) -> Arrival:
    facts = wheel_facts.of_wheel(wheel, sha256=sha256)
    subject = WheelSubject(wheel=wheel, survey=wheel_facts.survey(facts))
    found = tuple(each for each in wheel_rules.examine(subject) if each.severity != "note")
    path = wheel.path
    if any(each.severity == "error" for each in found):
        return Arrival(path=path, sha256=sha256, size=wheel.size, findings=found)
    metadata, encoded = wheel.read(f"{wheel.info}METADATA"), wheel_facts.encoded(facts)
    metadata_hashes = Hashes(files.sha256_of(metadata))
    chosen = channels.of(facts)
    provenance, problem = attestations.beside(path, sha256)
    file = PublishedFile(
        filename=path.name,
        url="",
        hashes=Hashes(sha256),
        requires_python=facts.requires_python,
        size=wheel.size,
        core_metadata=metadata_hashes,
        dist_info_metadata=metadata_hashes,
        facts=Hashes(files.sha256_of(encoded)),
        provenance_hashes=Hashes(files.sha256_of(provenance)) if provenance else None,
        channels=chosen.names,
    )
    return Arrival(
        path=path,
        sha256=sha256,
        size=wheel.size,
        file=file,
        metadata=metadata,
        facts=encoded,
        provenance=provenance,
        variants=variant.document_of(wheel) if facts.variant else None,
        findings=(*found, *chosen.findings, *([problem] if problem else [])),
    )


def _not_a_wheel(problem: str, hint: str = "") -> Finding:
    fix = hint or "build it or download it again"
    return Finding(rule="not-a-wheel", severity="error", message=problem, fix=fix)


def _two(one: Arrival, other: Arrival) -> Finding:
    return Finding(
        rule="publish-two-files",
        severity="error",
        message="two files of this name were given, with different content",
        evidence=(str(one.path), str(other.path)),
        fix="give only one of them",
    )
