"""Wheels that are to be published: read once, put to the rules of `verify`, turned into what an index says of them.

The channels that a wheel belongs to, `cu130` and `cu130/torch2.11`, follow from what is in it, then from what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import index_folder, signatures
from cuwheel.delivery.simple_api import Hashes, PublishedFile
from cuwheel.device_code import target, wheel_facts
from cuwheel.facts import packages
from cuwheel.proving import wheel_rules
from cuwheel.support import files
from cuwheel.support.finding import finding
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel import requirements, variant
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.variant import Document
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from cuwheel.device_code.wheel_facts import LibraryFacts, WheelFacts


# In local versions, as people write them: `cu130`, `cu12torch2.6cxx11abiTRUE`, `pt211cu130`.
_CUDA_LABEL = re.compile(r"(?<![a-z])cu(\d{2})(\d?)(?!\d)", re.ASCII | re.IGNORECASE)
_TORCH_LABEL = re.compile(r"(?:torch|pt)(\d)\.?(\d{1,2})(?!\d)", re.ASCII | re.IGNORECASE)
# NVIDIA's packages whose version is that of the toolkit.
_OF_TOOLKIT = re.compile(r"cuda-toolkit|nvidia-cuda-(?:runtime|nvrtc|cupti)(?:-cu\d+)?", re.ASCII)
_VERSION = re.compile(r"\d{1,2}(?:\.\d{1,2})?", re.ASCII)


# What a publisher promises of machines: in a mirror, which is for known ones, no reason to refuse.
_PROMISES = frozenset(
    ("tag-glibc", "tag-libstdcxx", "tag-extension", "tags-differ", "requires-python", "metadata-differs")
) | {"licence-file-missing"}


VARIANTS = "variants"  # variant wheels, what uv reads of them, and the plain wheel of the same version


class Channels(Struct, frozen=True, kw_only=True):
    """`names`: none for a wheel without CUDA, which the flat index alone has."""

    names: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def channels_of_wheel(facts: WheelFacts) -> Channels:
    """Channels by what is in the wheel; its own label counts where the content does not contradict it."""
    if facts.variant:
        return Channels(names=(VARIANTS,))
    local = facts.version.partition("+")[2]
    needs = [each for each in map(requirements.parse, facts.requires_dist) if each]
    found = _by_content(facts, needs)
    match = _CUDA_LABEL.search(local)
    label = "" if match is None else f"{match[1]}.{match[2]}" if match[2] else match[1]
    agreed = label if label and (not found or versions.major(label) in {versions.major(each) for each in found}) else ""
    # Where the content names its CUDA versions, no label can know better.
    if agreed and facts.description is None and not any(_made_for(facts)):
        found = (agreed,)
    torch = _torch_label(local) or next(filter(None, map(_torch_pinned, needs)), "")
    named = sorted({f"cu{each.replace('.', '')}" for each in found if _VERSION.fullmatch(each)})
    names = [name for each in named for name in (each, *([f"{each}/torch{torch}"] if torch else []))]
    if not label or agreed:
        return Channels(names=tuple(names))
    message = f"its version says CUDA {label}, but what is in it was made for CUDA {', '.join(found)}"
    contradiction = finding("publish-label-wrong", message, evidence=(facts.version,))
    return Channels(names=tuple(names), findings=(contradiction,))


def _by_content(facts: WheelFacts, needs: Iterable[Requirement]) -> tuple[str, ...]:
    """The CUDA versions, with their minor where anything tells it; the surest evidence first."""
    if described := facts.description:
        return tuple(versions.minor(each) for each in [part.cuda for part in described.merged] or [described.cuda])
    if several := tuple(dict.fromkeys(_made_for(facts))):
        return several
    if toolkits := [each for library in facts.libraries if library.device_code for each in library.toolkits]:
        return (versions.minor(max(toolkits, key=versions.key)),)
    majors = {each.cudart.major for each in facts.libraries if each.cudart and each.cudart.major}
    if pinned := [each for each in map(_toolkit_pinned, needs) if each]:
        newest = versions.minor(max(pinned, key=versions.key))
        if not majors or versions.major(newest) in majors:
            return (newest,)
    return tuple(dict.fromkeys(_of_runtime(facts.libraries)))


def _made_for(facts: WheelFacts) -> Iterator[str]:
    """The CUDA versions of a package with a library for each."""
    profile = packages.find_profile(facts.name, facts.loads_as or facts.version)
    if profile and profile.loads == "one":
        yield from filter(None, (packages.made_for(profile, each.path) for each in facts.libraries))


def _of_runtime(libraries: Iterable[LibraryFacts]) -> Iterator[str]:
    for each in libraries:
        if each.cudart and each.cudart.major:
            minor = each.cudart.minor
            yield str(each.cudart.major) if minor is None else f"{each.cudart.major}.{minor}"


def _toolkit_pinned(requirement: Requirement) -> str:
    if not _OF_TOOLKIT.fullmatch(normalised(requirement.name)):
        return ""
    pins = (each.version.removesuffix(".*") for each in requirement.specifier if each.operator in ("==", "~="))
    return next((each for each in pins if re.fullmatch(r"\d+\.\d+.*", each)), "")


def _torch_pinned(requirement: Requirement) -> str:
    """The minor release of torch that a requirement allows, if it is one alone."""
    if normalised(requirement.name) != "torch":
        return ""
    for each in requirement.specifier:
        match = re.match(r"(\d{1,3})\.(\d{1,3})", each.version)
        if match and each.operator in ("==", "===", "~=", ">="):
            following = f"{match[1]}.{bounded.digits(match[2]) + 1}"
            if not any(requirement.specifier.contains(f"{following}.{patch}") for patch in range(2)):
                return match[0]
    return ""


def _torch_label(local: str) -> str:
    match = _TORCH_LABEL.search(local)
    return f"{match[1]}.{bounded.digits(match[2])}" if match else ""


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


def read_arrivals(wheels: Sequence[str | Path], *, of_others: bool = False) -> list[Arrival]:
    """The wheels in the order of their names. The same file named twice is one. `of_others`: for a mirror."""
    found = [read_arrival(each, of_others=of_others) for each in wheel_paths(wheels)]
    unique: dict[str, Arrival] = {}
    for each in found:
        other = unique.setdefault(each.name, each)
        if other.sha256 != each.sha256:
            two = finding(
                "publish-two-files",
                "two files of this name were given, with different content",
                evidence=(str(other.path), str(each.path)),
            )
            unique[each.name] = replace(other, findings=(*other.findings, two))
    return list(unique.values())


def wheel_paths(wheels: Sequence[str | Path]) -> list[Path]:
    """Each once, in the order of their names."""
    found = {files.absolute(path) for wheel in wheels for path in _paths_of(wheel)}
    return sorted(found, key=lambda each: (each.name, str(each)))


def _paths_of(wheel: str | Path) -> Iterator[Path]:
    path = Path(target.downloaded_if_pinned(wheel))
    if not path.is_dir():
        yield path
        return
    wheels = sorted(path.glob("*.whl"))
    if not wheels:
        raise UnreadableError(path, "there is no wheel in this folder", hint="cuwheel publish dist/*.whl --to index")
    yield from wheels


def read_arrival(path: Path, *, of_others: bool = False) -> Arrival:
    """What is wrong with it is a finding, since the others are looked at too; but one that may do harm is an error."""
    if not path.is_file():
        raise UnreadableError(path, "no such file")
    if index_folder.wheel_name(path.name) is None:
        return Arrival(path=path, findings=(_not_a_wheel("its file name is not that of a wheel"),))
    sha256 = files.sha256(path)
    try:
        with WheelFile(path) as wheel:
            return _read_wheel(wheel, sha256, of_others=of_others)
    except MalformedError as error:
        return Arrival(path=path, sha256=sha256, findings=(_not_a_wheel(error.problem, error.hint),))


def _read_wheel(wheel: WheelFile, sha256: str, *, of_others: bool) -> Arrival:
    facts = wheel_facts.of_wheel(wheel, sha256=sha256)
    subject = WheelSubject(wheel=wheel, survey=wheel_facts.survey(facts))
    found = tuple(each for each in wheel_rules.examine(subject) if each.severity != "note")
    if of_others:
        found = tuple(replace(each, severity="warning") if each.rule in _PROMISES else each for each in found)
    path = wheel.path
    if any(each.severity == "error" for each in found):
        return Arrival(path=path, sha256=sha256, size=wheel.size, findings=found)
    metadata, encoded = wheel.read(f"{wheel.info}METADATA"), wheel_facts.encoded(facts)
    metadata_hashes = Hashes(files.sha256_of(metadata))
    chosen = channels_of_wheel(facts)
    provenance, problem = signatures.read_provenance(path, sha256)
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
    return finding("not-a-wheel", problem, fix=fix)
