"""Does the driver run this CUDA at all, and is the build for this kind of machine?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables
from cuwheel.support.wording import a_few
from cuwheel.verdicts import drivers
from cuwheel.verdicts.check_rules.case import Case, error_words
from cuwheel.verdicts.choice import INSUFFICIENT_DRIVER, NO_DEVICE, SYMBOL_NOT_FOUND
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule(
    "driver-below-cuda-floor",
    severity="error",
    why="""From CUDA 11 on every minor release of a major runs on the driver that the major began with; before, each
    release needs its own. Below that floor the first CUDA call fails with error 35, whatever code the library has, and
    whether the runtime is shared or linked in.""",
    source="NVIDIA: CUDA compatibility guide, minor-version compatibility",
    fix="update the driver, install cuda-compat where the GPU allows it, or take a build for an older CUDA",
)
def driver_below_cuda_floor(case: Case) -> Iterator[Found]:
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
    yield Found(
        message=f"{message}: {error_words(INSUFFICIENT_DRIVER)}",
        evidence=(f"CUDA {cuda} needs driver {floor or f'of CUDA {cuda}'} or later", runtime),
        fix=_driver_or_older_build(case, floor, str(cuda)),
    )


def _driver_or_older_build(case: Case, floor: str | None, cuda: str) -> str:
    older = drivers.older_build_fix(case.library, case.machine)
    if case.code.outcome == "fails" and not drivers.its_cuda_can_build(case.library, case.machine):
        return f"a newer driver alone does not help, because CUDA {cuda} does not compile for this GPU" + (
            f": {older}" if older else ""
        )
    return " or ".join(filter(None, [f"{drivers.newer_driver_fix(case.machine, floor, cuda)},", older])).rstrip(",")


@rule(
    "gpu-unknown-to-driver",
    severity="error",
    why="""A driver supports the GPUs that existed when its branch was made, and drops old ones over time: 470 is the
    last branch for Kepler, 580 for Maxwell, Pascal and Volta. A driver ignores a GPU it does not support: the kernel's
    log says that it is not supported by this driver release, nvidia-smi finds no devices, and neither does CUDA: error
    100, no CUDA-capable device is detected. Another build of a package does not help.""",
    source="NVIDIA open kernel modules: rm_is_supported_device, and the GPUs that each release lists",
    fix="install a driver that supports the GPU",
)
def gpu_unknown_to_driver(case: Case) -> Iterator[Found]:
    row = drivers.support_of(case.machine)
    if "gpu" not in case.prediction.stops or row is None:
        return
    floor, driver = drivers.floor_of(case.library, case.machine), drivers.driver_in_words(case.machine)
    if drivers.gpu_state(case.machine, drivers.system_of(case.library, case.machine)) == "too-old":
        message = f"{driver} does not support the {case.gpu}: branch {row.first} was the first to support it"
        fix = drivers.newer_driver_fix(case.machine, floor, str(drivers.cuda_major(case.library)))
    else:
        message = f"{driver} no longer supports the {case.gpu}: branch {row.last} was the last to support it"
        fix = f"install a driver of branch {row.last}"
    titles = tables().gpu_drivers.sources
    yield Found(
        message=f"{message}: {error_words(NO_DEVICE)}",
        evidence=tuple(f"known from: {titles[each].title}" for each in row.source if each != "pci-ids"),
        fix=fix,
    )


@rule(
    "gpu-not-in-driver-list",
    severity="warning",
    why="""Every driver release has a list of the GPUs it names. A GPU that came out later, with a chip that
    the driver supports, may run under a name such as "NVIDIA Graphics Device", but NVIDIA does not promise it.""",
    source="NVIDIA open kernel modules, g_nv_name_released.h of each release; the driver's changelog",
    fix="update the driver to a release that lists the GPU",
)
def gpu_not_in_driver_list(case: Case) -> Iterator[Found]:
    on = drivers.system_of(case.library, case.machine)
    uses_gpu = case.library.device_code or case.library.cudart
    if uses_gpu and (first := drivers.unlisted_before(case.machine, on)):
        yield Found(
            message=f"driver {case.machine.driver} does not list the {case.gpu}: {first} is the first that does",
            evidence=("this driver branch supports its chip, so it may run anyway",),
            fix=f"update the driver to {first} or later",
        )


@rule(
    "zstd-needs-newer-driver",
    severity="error",
    why="""Fat binaries compressed with ZSTD are read by drivers of CUDA 12.4 and later only. CUDA 13 needs a newer
    driver anyway; code that CUDA 12 compressed so does not load on an older one. Which error it gives is not
    confirmed.""",
    source="CUDA Toolkit release notes, fat binary compression",
    fix="update the driver, or build with nvcc --compress-mode=speed",
)
def zstd_needs_newer_driver(case: Case) -> Iterator[Found]:
    floor = drivers.zstd_floor(case.library, case.machine)
    if "zstd" in case.prediction.stops and floor:
        yield Found(
            message=f"its device code is compressed with ZSTD, which the driver cannot read before {floor}",
            evidence=tuple(
                sorted(
                    {f"{row.arch} in {row.section}" for row in case.library.device_code if row.compression == "zstd"}
                )
            )[:3],
            fix=f"{drivers.newer_driver_fix(case.machine, floor, '')}, or build with nvcc --compress-mode=speed",
        )


@rule(
    "sbsa-on-l4t",
    severity="error",
    why="""Up to CUDA 12 there are two distributions of CUDA for arm64: for servers (SBSA), and for Jetson, which runs
    L4T. A library built with one fails on the other at the first launch with error 500, named symbol not found,
    although its machine code fits: adding architectures does not help. From CUDA 13 on there is one. This rests on
    one package and one thread of evidence.""",
    source="bitsandbytes pull request 1939: a build on the device ran, the wheel for servers did not",
    fix="build it on the device with JetPack's toolkit, or install a build from an index for Jetson",
)
def sbsa_on_l4t(case: Case) -> Iterator[Found]:
    platform = case.library.platform
    if "platform" not in case.prediction.stops or platform is None:
        return
    fitting = ", ".join(sorted({each.arch for each in case.code.taken}))
    although = f", although {fitting} fits the {case.gpu}: the architecture list is not the problem" if fitting else ""
    since = tables().toolkits.arm64.one_distribution_since
    built, runs = ("servers (SBSA)", "L4T") if platform.name == "sbsa" else ("Jetson (L4T)", "a server's Linux")
    yield Found(
        message=f"it is built for {built} by a CUDA before {since}, and this machine runs {runs}: "
        f"{error_words(SYMBOL_NOT_FOUND)}{although} (known from one package)",
        evidence=(f"CUDA {drivers.cuda_major(case.library)}, {platform.evidence}",),
    )


@rule(
    "arm64-build-unconfirmed",
    severity="warning",
    why="""From CUDA 13 on servers and Jetson share one distribution. It was made for Thor; Orin joined it with JetPack
    7.2 (CUDA 13.2). On an older L4T, or a Tegra that never joined, nobody has confirmed that it runs.""",
    source="CUDA Toolkit 13.0 release notes, arm64; JetPack 7.2",
    fix="update JetPack, try it on the device, or build it there",
)
def arm64_build_unconfirmed(case: Case) -> Iterator[Found]:
    platform = case.library.platform
    if platform and drivers.needs_newer_l4t(case.library, case.machine) and not case.prediction.stops:
        wanted = drivers.jetpack_needed(case.machine)
        yield Found(
            message=f"it is built for servers with CUDA {drivers.cuda_major(case.library)}, and nobody has confirmed "
            f"that this runs on the {case.gpu}" + (f": it needs {wanted}" if wanted else ""),
            evidence=(platform.evidence,),
            fix=f"install {wanted}, or build it on the device" if wanted else "",
        )


RULES = (
    driver_below_cuda_floor,
    gpu_unknown_to_driver,
    gpu_not_in_driver_list,
    sbsa_on_l4t,
    zstd_needs_newer_driver,
    arm64_build_unconfirmed,
)
