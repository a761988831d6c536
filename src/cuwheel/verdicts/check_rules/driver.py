"""Does the driver run this CUDA at all, and is the build for this kind of machine?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.support.finding import finding
from cuwheel.verdicts import fixes
from cuwheel.verdicts.check_rules.case import LibraryCase, error_words
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.tables import tables
from cuwheel_core.fix import Fix, led_by
from cuwheel_core.support.wording import a_few
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import INSUFFICIENT_DRIVER, NO_DEVICE, SYMBOL_NOT_FOUND

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding


def driver_below_cuda_floor(case: LibraryCase) -> Iterator[Finding]:
    if "driver" not in case.prediction.stops:
        return
    floor = drivers.floor_of(case.library, case.machine)
    cuda = drivers.runtime_cuda(case.library)
    linked = a_few(list(drivers.needed_libraries(case.library)))
    runtime = case.library.cudart.evidence if case.library.cudart else f"it is linked with {linked}"
    row = drivers.support_of(case.machine)
    if floor and row and not drivers.driver_reachable(case.machine, floor):
        message = f"CUDA {cuda} needs driver {floor}, and branch {row.last} is the last to support the {case.gpu}"
    else:
        message = f"{drivers.driver_in_words(case.machine)} is too old for CUDA {cuda}"
    yield finding(
        "driver-below-cuda-floor",
        f"{message}: {error_words(INSUFFICIENT_DRIVER)}",
        evidence=(f"CUDA {cuda} needs driver {floor or f'of CUDA {cuda}'} or later", runtime),
        fix=_driver_or_older_build(case, floor, str(cuda)),
    )


def _driver_or_older_build(case: LibraryCase, floor: str | None, cuda: str) -> tuple[Fix, ...]:
    older = fixes.older_build_fixes(case.library, case.machine)
    if case.code.outcome == "fails" and not fixes.its_cuda_can_build(case.library, case.machine):
        why = f"a newer driver alone does not help, because CUDA {cuda} does not compile for this GPU"
        told = led_by(f"{why}: ", older) or (Fix(text=why, changes=("nothing",)),)
        return tuple(replace(each, rules_out=("driver",)) for each in told)
    return (*fixes.newer_driver_fixes(case.machine, floor, cuda), *older)


def gpu_unknown_to_driver(case: LibraryCase) -> Iterator[Finding]:
    row = drivers.support_of(case.machine)
    if "gpu" not in case.prediction.stops or row is None:
        return
    floor, driver = drivers.floor_of(case.library, case.machine), drivers.driver_in_words(case.machine)
    if drivers.gpu_state(case.machine, drivers.system_of(case.library, case.machine)) == "too-old":
        message = f"{driver} does not support the {case.gpu}: branch {row.first} was the first to support it"
        fix = fixes.newer_driver_fixes(case.machine, floor, str(drivers.cuda_major(case.library)))
    else:
        message = f"{driver} no longer supports the {case.gpu}: branch {row.last} was the last to support it"
        fix = (Fix(text=f"install a driver of branch {row.last}", changes=("driver", "system"), to=row.last or ""),)
    titles = tables().gpu_drivers.sources
    yield finding(
        "gpu-unknown-to-driver",
        f"{message}: {error_words(NO_DEVICE)}",
        evidence=tuple(f"known from: {titles[each].title}" for each in row.source if each != "pci-ids"),
        fix=fix,
    )


def gpu_not_in_driver_list(case: LibraryCase) -> Iterator[Finding]:
    on = drivers.system_of(case.library, case.machine)
    uses_gpu = case.library.device_code or case.library.cudart
    if uses_gpu and (first := drivers.unlisted_before(case.machine, on)):
        yield finding(
            "gpu-not-in-driver-list",
            f"driver {case.machine.driver} does not list the {case.gpu}: {first} is the first that does",
            evidence=("this driver branch supports its chip, so it may run anyway",),
            fix=Fix(text=f"update the driver to {first} or later", changes=("driver",), to=first),
        )


def zstd_needs_newer_driver(case: LibraryCase) -> Iterator[Finding]:
    floor = drivers.zstd_floor(case.library, case.machine)
    if "zstd" in case.prediction.stops and floor:
        yield finding(
            "zstd-needs-newer-driver",
            f"its device code is compressed with ZSTD, which the driver cannot read before {floor}",
            evidence=tuple(
                sorted(
                    {f"{row.arch} in {row.section}" for row in case.library.device_code if row.compression == "zstd"}
                )
            )[:3],
            fix=(
                *fixes.newer_driver_fixes(case.machine, floor, ""),
                Fix(text="build with nvcc --compress-mode=speed", changes=("build",)),
            ),
        )


def sbsa_on_l4t(case: LibraryCase) -> Iterator[Finding]:
    platform = case.library.platform
    if "platform" not in case.prediction.stops or platform is None:
        return
    fitting = ", ".join(sorted({each.arch for each in case.code.taken}))
    although = f", although {fitting} fits the {case.gpu}: the architecture list is not the problem" if fitting else ""
    since = tables().toolkits.arm64.one_distribution_since
    built, runs = ("servers (SBSA)", "L4T") if platform.name == "sbsa" else ("Jetson (L4T)", "a server's Linux")
    if platform.name == "sbsa":
        wanted, joined = drivers.jetpack_needed(case.machine), toolkits.joined_arm64(case.machine.capability)
        both = f"; with {wanted}, also one by CUDA {joined.cuda} or later" if wanted and joined else ""
        fix = f"take it built with JetPack's toolkit, here or from an index for Jetson{both}"
    else:
        fix = f"take it built for arm64 servers; by CUDA {since} or later one build is for both"
    yield finding(
        "sbsa-on-l4t",
        predicate=f"is built for {built} by a CUDA before {since}, and this machine runs {runs}: "
        f"{error_words(SYMBOL_NOT_FOUND)}{although} (known from one package)",
        evidence=(f"CUDA {drivers.cuda_major(case.library)}, {platform.evidence}",),
        fix=fix,
    )


def arm64_build_unconfirmed(case: LibraryCase) -> Iterator[Finding]:
    platform, machine = case.library.platform, case.machine
    built, older = drivers.before_joining(case.library, machine), drivers.needs_newer_l4t(case.library, machine)
    if platform is None or case.prediction.stops or not (built or older):
        return
    wanted = drivers.jetpack_needed(machine) if older else ""
    joined = toolkits.joined_arm64(machine.capability)
    newer = f"CUDA {joined.cuda} or later" if joined and built else ""
    fixes = [f"install {wanted}" if wanted else "", f"build it with {newer}" if newer else ""]
    yield finding(
        "arm64-build-unconfirmed",
        predicate=f"is built for servers with CUDA {built or drivers.cuda_major(case.library)}, and nobody has "
        f"confirmed that this runs on the {case.gpu}"
        + (f": it needs {wanted}" if wanted else "")
        + (f"{', and' if wanted else ':'} what serves both is {newer}" if newer else ""),
        evidence=(platform.evidence,),
        fix=f"{' and '.join(filter(None, fixes))}, or build it on the device" if any(fixes) else None,
    )


RULES = (
    driver_below_cuda_floor,
    gpu_unknown_to_driver,
    gpu_not_in_driver_list,
    sbsa_on_l4t,
    zstd_needs_newer_driver,
    arm64_build_unconfirmed,
)
