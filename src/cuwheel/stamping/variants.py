"""Variant wheels of a finished plain one, and the document of all variants beside them.

All variants of a release have its public version (`1.2`, and not `1.2+cu130`): installers compare versions first, and
variants only within one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import files, locking
from cuwheel.compat import drivers, variant_reach
from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.facts import toolkits, versions
from cuwheel.facts.tables import tables
from cuwheel.files import errors_of, sync_folder
from cuwheel.finding import Finding
from cuwheel.inspection import description
from cuwheel.inspection.survey import survey_wheel
from cuwheel.stamping import stamp
from cuwheel.wheel import variant as variants
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.name import WheelName
from cuwheel.wheel.variant import Property, Variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.compat.variant_reach import Claim, Served
    from cuwheel.facts.arch import Capability
    from cuwheel.inspection.libraries import Library, Survey

_FIX = "cuwheel install NAME looks at the code itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantWheel:
    """A variant in its place."""

    path: Path
    sha256: str
    size: int
    variant: Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was made of one plain wheel."""

    plain: Path
    wheels: tuple[VariantWheel, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The variants that a wheel is to be given, and what no variant can say."""

    variants: tuple[Variant, ...]
    findings: tuple[Finding, ...]


def decide(found: Survey, cuda: str | None = None) -> Decided:
    """Pure. `cuda`: what the wheel is known to have been built with; else its code tells. Needs the containers."""
    reach = variant_reach.Reach(found)
    served = reach.served()
    made = variant_reach.claims(served, reach.devices)
    name = _cuda_label(found, cuda)
    return Decided(
        variants=tuple(_variant(each, name) for each in made),
        findings=tuple(_findings(found, reach.devices, served, made)),
    )


def _variant(claim: Claim, cuda: str) -> Variant:
    row = tables().variants.provider
    said = {row.lower_bound: (claim.since,), row.arch: tuple(each.text for each in claim.values)}
    return Variant(
        label=_label(claim, cuda),
        properties=tuple(
            Property(namespace=row.namespace, feature=feature, values=said[feature]) for feature in sorted(said)
        ),
    )


def _label(claim: Claim, cuda: str) -> str:
    """`cu130_sm80_90_ptx100_min13.0`: from what it says alone, so that the same label always means the same."""
    real = [each.first.number for each in claim.values if each.real]
    virtual = [each.first.major * 10 for each in claim.values if not each.real]
    parts = [cuda]
    parts += ["sm" + "_".join(map(str, real))] if real else []
    parts += ["ptx" + "_".join(map(str, virtual))] if virtual else []
    return "_".join(parts) + ("" if _expected(claim, cuda) else f"_min{claim.since}")


def _expected(claim: Claim, cuda: str) -> bool:
    """Whether the driver that it needs is what its CUDA lets one expect: its first release, for PTX its own."""
    try:
        release = toolkits.find_release(cuda).version
    except CuwheelError:
        return False
    ptx = any(not each.real for each in claim.values)
    return claim.since == (release if ptx else f"{versions.major(release)}.0")


def _cuda_label(found: Survey, cuda: str | None) -> str:
    """`cu130`; of a wheel with libraries for several CUDA versions `cu118to130`."""
    if cuda and re.fullmatch(r"\d+\.\d+", cuda):
        return f"cu{cuda.replace('.', '')}"
    told = {version for each in found.libraries if (version := _cuda_of(each))}
    if not told:
        return "cuda"
    first, last = (versions.minor(each(told, key=versions.key)).replace(".", "") for each in (min, max))
    return f"cu{first}" if first == last else f"cu{first}to{last}"


def _cuda_of(library: Library) -> str | None:
    """The newest toolkit that wrote code of it; of PTX alone the first that writes such."""
    if library.toolkits:
        return max(library.toolkits, key=versions.key)
    ptx = [drivers.cuda_of_isa(row.ptx_isa) for row in library.device_code if row.ptx_isa and row.kind == "ptx"]
    return max(filter(None, ptx), key=versions.key, default=None)


def _findings(
    found: Survey, known: tuple[Capability, ...], served: tuple[Served, ...], made: tuple[Claim, ...]
) -> Iterator[Finding]:
    file = found.target.replace("\\", "/").rpartition("/")[2]
    if not served:
        yield Finding(
            rule="variant-none",
            severity="warning",
            message=f"{file}: no variant was written, as its device code serves no known GPU in full",
            fix="cuwheel inspect WHEEL   (what is in it)",
        )
        return
    unsaid = variant_reach.unsaid(served, made)
    if unsaid:
        yield Finding(
            rule="variant-unsaid",
            severity="note",
            message=f"{file} also serves GPUs that no value of a variant can name: "
            + ", ".join(str(each.capability) for each in unsaid),
            evidence=tuple(_why_unsaid(each, served, known) for each in unsaid),
            fix=_FIX,
        )


def _why_unsaid(served: Served, every: tuple[Served, ...], known: Iterable[Capability]) -> str:
    """The narrowest values that match the device match others, too, or nothing."""
    device = served.capability
    value = f"{device.number}_real" if served.outcome != "jit" else f"{device.major}0_virtual"
    good = {each.capability for each in every if served.outcome == "jit" or each.outcome != "jit"}
    others = [
        str(each)
        for each in known
        if each.major == device.major and each not in good and (served.outcome == "jit" or each.minor > device.minor)
    ]
    how = "compiles PTX for it" if served.outcome == "jit" else "has machine code for it"
    return f"{device}: the wheel {how}, but {value} matches {', '.join(others)} too, which it does not serve so"


def write(plain: Path, to: Path) -> Written:
    """The variants of a wheel, in the folder `to`, each under its name by a rename. The document is not written."""
    with WheelFile(plain) as wheel:
        stamp.must_be_publishable(wheel)
        if wheel.name is None or wheel.name.variant:
            raise MalformedError(plain, "is a variant already", hint="give the plain wheel that it was made from")
        told = description.of_wheel(wheel)
        decided = decide(survey_wheel(wheel, detail="containers"), told.cuda if told else None)
        with errors_of(to, f"the variants of {plain.name} were not written"), locking.scratch(to) as folder:
            made = [_written(wheel, each, folder) for each in decided.variants]
            placed = [
                VariantWheel(
                    path=path.replace(to / path.name),
                    sha256=files.sha256(to / path.name),
                    size=(to / path.name).stat().st_size,
                    variant=each,
                )
                for path, each in zip(made, decided.variants, strict=True)
            ]
            sync_folder(to)
    return Written(plain=plain, wheels=tuple(placed), findings=decided.findings)


def _written(wheel: WheelFile, variant: Variant, folder: Path) -> Path:
    edit = WheelEdit(wheel)
    version = stamp.public_version(wheel.distribution.version)
    if version != wheel.distribution.version:
        edit.rename(version=version)
    edit.label(variant.label)
    edit.add(wheel.info + variants.FILE, variants.encoded(variants.for_nvidia([variant])))
    made = folder / str(edit.name)
    edit.write(made)
    return made


def write_sets(folder: Path, releases: Iterable[WheelName]) -> tuple[Path, ...]:
    """The documents of these releases, from all variant wheels of them in the folder."""
    found: dict[str, list[variants.Document]] = {variants.set_name(each): [] for each in releases}
    for path in sorted(folder.glob("*.whl")):
        name = WheelName.parse(path.name)
        if name and name.variant and variants.set_name(name) in found:
            with WheelFile(path) as wheel:
                if document := variants.document_of(wheel):
                    found[variants.set_name(name)].append(document)
    written = []
    for file, documents in found.items():
        if documents:
            files.write(folder / file, variants.encoded(variants.together(documents, file)))
            written.append(folder / file)
    return tuple(written)
