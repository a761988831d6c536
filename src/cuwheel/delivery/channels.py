"""The channels that a wheel belongs to, `cu130` and `cu130/torch2.11`: by what is in the file, then by what it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.utils import canonicalize_name

from cuwheel.facts import packages, versions
from cuwheel.support.finding import Finding
from cuwheel.wheel import requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.requirements import Requirement

    from cuwheel.device_code.wheel_facts import LibraryFacts, WheelFacts

# In local versions, as people write them: `cu130`, `cu12torch2.6cxx11abiTRUE`, `pt211cu130`.
_CUDA_LABEL = re.compile(r"(?<![a-z])cu(\d{2})(\d?)(?!\d)", re.ASCII | re.IGNORECASE)
_TORCH_LABEL = re.compile(r"(?:torch|pt)(\d)\.?(\d{1,2})(?!\d)", re.ASCII | re.IGNORECASE)
# NVIDIA's packages whose version is that of the toolkit.
_OF_TOOLKIT = re.compile(r"cuda-toolkit|nvidia-cuda-(?:runtime|nvrtc|cupti)(?:-cu\d+)?", re.ASCII)
_VERSION = re.compile(r"\d{1,2}(?:\.\d{1,2})?", re.ASCII)


VARIANTS = "variants"  # variant wheels, what uv reads of them, and the plain wheel of the same version


class Channels(Struct, frozen=True, kw_only=True):
    """`names`: none for a wheel without CUDA, which the flat index alone has."""

    names: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def of(facts: WheelFacts) -> Channels:
    """By what is in the wheel; its own label counts where the content does not contradict it."""
    if facts.variant:
        return Channels(names=(VARIANTS,))
    local = facts.version.partition("+")[2]
    needs = [each for each in map(requirements.parse, facts.requires_dist) if each]
    found, label = _by_content(facts, needs), _cuda_label(local)
    agreed = label if label and (not found or versions.major(label) in {versions.major(each) for each in found}) else ""
    if agreed and not _is_exact(facts):
        found = (agreed,)
    torch = _torch_label(local) or next(filter(None, map(_torch_pinned, needs)), "")
    named = sorted({f"cu{each.replace('.', '')}" for each in found if _VERSION.fullmatch(each)})
    names = [name for each in named for name in (each, *([f"{each}/torch{torch}"] if torch else []))]
    contradiction = (_contradiction(facts, label, found),) if label and not agreed else ()
    return Channels(names=tuple(names), findings=contradiction)


def _is_exact(facts: WheelFacts) -> bool:
    """Whether the content names its CUDA versions, so that no label can know better."""
    return facts.description is not None or any(_made_for(facts))


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
    """Of a package with a library for each CUDA version."""
    profile = packages.find_profile(facts.name, facts.loads_as or facts.version)
    if profile and profile.loads == "one":
        yield from filter(None, (packages.made_for(profile, each.path) for each in facts.libraries))


def _of_runtime(libraries: Iterable[LibraryFacts]) -> Iterator[str]:
    for each in libraries:
        if each.cudart and each.cudart.major:
            minor = each.cudart.minor
            yield str(each.cudart.major) if minor is None else f"{each.cudart.major}.{minor}"


def _toolkit_pinned(requirement: Requirement) -> str:
    if not _OF_TOOLKIT.fullmatch(canonicalize_name(requirement.name)):
        return ""
    pins = (each.version.removesuffix(".*") for each in requirement.specifier if each.operator in ("==", "~="))
    return next((each for each in pins if re.fullmatch(r"\d+\.\d+.*", each)), "")


def _torch_pinned(requirement: Requirement) -> str:
    """The minor release of torch that a requirement allows, if it is one alone."""
    if canonicalize_name(requirement.name) != "torch":
        return ""
    for each in requirement.specifier:
        match = re.match(r"(\d{1,3})\.(\d{1,3})", each.version)
        if match and each.operator in ("==", "===", "~=", ">="):
            following = f"{match[1]}.{int(match[2]) + 1}"
            if not any(requirement.specifier.contains(f"{following}.{patch}") for patch in range(2)):
                return match[0]
    return ""


def _cuda_label(local: str) -> str:
    match = _CUDA_LABEL.search(local)
    return "" if match is None else f"{match[1]}.{match[2]}" if match[2] else match[1]


def _torch_label(local: str) -> str:
    match = _TORCH_LABEL.search(local)
    return f"{match[1]}.{int(match[2])}" if match else ""


def _contradiction(facts: WheelFacts, label: str, found: tuple[str, ...]) -> Finding:
    return Finding(
        rule="publish-label-wrong",
        severity="warning",
        message=f"its version says CUDA {label}, but what is in it was made for CUDA {', '.join(found)}",
        evidence=(facts.version,),
        fix="it is put into the channel of its content; build it again with the right label",
    )
