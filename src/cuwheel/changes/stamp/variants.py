"""Variant wheels of a finished plain one, and the document of all variants beside them.

All variants of a release have its public version (`1.2`, and not `1.2+cu130`): installers compare versions first, and
variants only within one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.stamp import stamp
from cuwheel.device_code import description
from cuwheel.device_code.survey import survey_wheel
from cuwheel.facts.tables import tables
from cuwheel.support import files, system_calls
from cuwheel.support.files import errors_of, sync_folder
from cuwheel.support.finding import finding
from cuwheel.verdicts import variant_reach, variant_values
from cuwheel.wheel import variant as variants
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.variant import Property, Variant, VariantSet, VariantWheel
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts import drivers
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.verdicts.variant_reach import Claim, Served
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.arch import Capability

_FIX = "compile plain machine code for them, without a suffix"


class Decided(Struct, frozen=True, kw_only=True):
    """The variants that a wheel is to be given, and what no variant can say. `machines`: how many kinds it serves."""

    variants: tuple[Variant, ...]
    findings: tuple[Finding, ...]
    machines: int


class _Written(Struct, frozen=True, kw_only=True):
    """What was made of one plain wheel, whose name without the label of a CUDA version is `public`."""

    plain: Path
    public: WheelName
    wheels: tuple[VariantWheel, ...]
    decided: Decided


def decide(found: Survey, cuda: str | None = None) -> Decided:
    """Pure. `cuda`: what the wheel is known to have been built with; else its code tells. Needs the containers."""
    reach = variant_reach.VariantReach(found)
    served = reach.served()
    made = variant_reach.claims(served, reach.devices)
    name = _cuda_label(found, cuda)
    return Decided(
        variants=tuple(_variant(each, name) for each in made),
        findings=tuple(_findings(found, reach.devices, served, made)),
        machines=sum(
            versions.at_least(cuda, each.since) for each in served for cuda in variant_values.provider_cuda_versions()
        ),
    )


def _variant(claim: Claim, cuda: str) -> Variant:
    row = tables().variants.provider
    properties = {row.lower_bound: (claim.since,), row.arch: tuple(each.text for each in claim.values)}
    # `cu130_sm80_90_ptx100_min13.0`: from what it says alone, so that the same label always means the same.
    real = [each.first.number for each in claim.values if each.real]
    virtual = [each.first.major * 10 for each in claim.values if not each.real]
    parts = [cuda]
    parts += ["sm" + "_".join(map(str, real))] if real else []
    parts += ["ptx" + "_".join(map(str, virtual))] if virtual else []
    return Variant(
        label="_".join(parts) + ("" if _expected(claim, cuda) else f"_min{claim.since}"),
        properties=tuple(
            Property(namespace=row.namespace, feature=feature, values=properties[feature])
            for feature in sorted(properties)
        ),
    )


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
    cudas = {version for each in found.libraries if (version := _cuda_of(each))}
    if not cudas:
        return "cuda"
    first, last = (versions.minor(each(cudas, key=versions.key)).replace(".", "") for each in (min, max))
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
        yield finding("variant-none", f"{file}: no variant was written, as its device code serves no known GPU in full")
        return
    unsaid = variant_reach.unsaid(served, made)
    if unsaid:
        yield finding(
            "variant-unsaid",
            f"{file} also serves GPUs that no value of a variant can name: "
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


def write_all(plain: Sequence[Path], to: Path) -> tuple[tuple[VariantSet, ...], tuple[Finding, ...]]:
    """The variants of these wheels in the folder `to`, and a document for each release.

    Where all wheels of a release are labelled (`1.2+cu130`), the one that serves most machines is written once more
    without its label: it is what installers take that find no variant.
    """
    written: list[_Written] = []
    for path in plain:
        written.append(_write(path, to, {wheel.path: wheel for made in written for wheel in made.wheels}))
    findings = tuple(finding for each in written for finding in each.decided.findings)
    releases: dict[str, list[_Written]] = {}
    for each in written:
        releases.setdefault(variants.set_name(each.public), []).append(each)
    sets = [
        VariantSet(
            document=str(document),
            wheels=tuple(wheel for each in releases[document.name] for wheel in each.wheels),
            plain=tuple(_plain_of(releases[document.name], to)),
        )
        for document in write_sets(to, [each.public for each in written if each.wheels])
    ]
    return tuple(sets), findings


def _write(plain: Path, to: Path, taken: Mapping[str, VariantWheel]) -> _Written:
    """`taken`: the variants that other wheels were given, by their paths; the same wheel with a label and without gives
    the same.
    """
    with WheelFile(plain) as wheel:
        stamp.must_be_publishable(wheel)
        if wheel.name is None or wheel.name.variant:
            raise MalformedError(plain, "is a variant already", hint="give the plain wheel that it was made from")
        described = description.of_wheel(wheel)
        decided = decide(survey_wheel(wheel, detail="containers"), described.cuda if described else None)
        placed = []
        with errors_of(to, f"the variants of {plain.name} were not written"), files.scratch_beside(to) as folder:
            for each in decided.variants:
                made = _edited(wheel, each).write_into(folder)
                other = taken.get(str(to / made.name))
                if other is None:
                    place = to / made.name
                    size, sha256 = made.stat().st_size, files.sha256(made)
                    made.chmod(0o644)
                    system_calls.rename_over(made, place)
                    placed.append(
                        VariantWheel(
                            path=str(place),
                            size=size,
                            sha256=sha256,
                            label=each.label,
                            properties=each.properties,
                            made_from=str(plain),
                        )
                    )
                elif other.sha256 != files.sha256(made):
                    raise MalformedError(
                        plain, f"its variant {each.label} is also that of {other.made_from}", hint="give one of the two"
                    )
            sync_folder(to)
        version = stamp.public_version(wheel.name.version)
        public = wheel.name._replace(version=version)
    return _Written(plain=plain, public=public, wheels=tuple(placed), decided=decided)


def _edited(wheel: WheelFile, variant: Variant | None) -> WheelEdit:
    """The wheel with the public version, as this variant."""
    edit = WheelEdit(wheel)
    version = stamp.public_version(wheel.distribution.version)
    if version != wheel.distribution.version:
        edit.rename(version=version)
    if variant:
        edit.label(variant.label)
        edit.add(wheel.info + variants.FILE, variants.encoded(variants.for_nvidia([variant])))
    return edit


def _plain_of(written: Sequence[_Written], to: Path) -> Iterator[str]:
    """The wheel without a label, for each set of tags."""
    for name in dict.fromkeys(each.public for each in written):
        alike = [each for each in written if each.public == name]
        unlabelled = [each for each in alike if each.plain.name == str(name)]
        if unlabelled:
            yield str(unlabelled[0].plain)
            continue
        widest = max(alike, key=lambda each: each.decided.machines)
        with (
            WheelFile(widest.plain) as wheel,
            errors_of(to, f"{name} was not written"),
            files.scratch_beside(to) as folder,
        ):
            made = _edited(wheel, None).write_into(folder)
            made.chmod(0o644)
            yield str(system_calls.rename_over(made, to / made.name))


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
