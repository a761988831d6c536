"""May the package be installed on the machine, and does it have a library to load there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import packages
from cuwheel.support.wording import a_few
from cuwheel.verdicts import wheel_tags
from cuwheel.verdicts.loading import is_loadable
from cuwheel.verdicts.modules import is_driver_copy
from cuwheel.verdicts.predict import only_for_tools
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.verdicts.check_rules.case import Whole


@rule(
    "wheel-tag-mismatch",
    severity="error",
    why="""An installer takes a wheel only if one of its tags fits: the Python version, its ABI, the system, the
    processor, and for manylinux the C library.""",
    source="PEP 425 and PEP 600",
    fix="take the wheel whose tags fit this machine, or build one on it",
)
def wheel_tag_mismatch(whole: Whole) -> Iterator[Found]:
    distribution = whole.survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, whole.machine) if distribution else ()
    if found and found[0].problems:
        yield Found(
            message=f"it cannot be installed: {' and '.join(found[0].problems)}",
            evidence=tuple(f"tag {each.tag}" for each in found[:3]),
        )


@rule(
    "no-library-to-load",
    severity="error",
    why="""A package with one library for each CUDA version loads the one for its framework's CUDA. bitsandbytes up to
    0.49 takes that very version and no other; from 0.50 on, where there is none, the highest lower minor of that
    major, else the lowest higher one. Releases up to 0.44 have two for each, one of them for GPUs below 7.5. A
    variable, BNB_CUDA_VERSION, names another, and that file must be there. Where there is no library, releases from
    0.46 on fail at the first call, 0.43.1 to 0.45 go on without the GPU, and older ones cannot be imported.""",
    source="bitsandbytes/cextension.py and cuda_setup/main.py of 24 wheels from 0.37 to 0.50: see packages.toml",
    fix="take a release that has it, or build one for this CUDA",
)
def no_library_to_load(whole: Whole) -> Iterator[Found]:
    if whole.loading.missing:
        yield Found(
            message=f"it has no library to load here: {whole.loading.missing}",
            evidence=tuple(each.path for each in whole.survey.libraries if each.device_code)[:4],
            fix=whole.loading.fix,
        )


@rule(
    "made-for-amd",
    severity="error",
    why="""A build for ROCm has the same name and the same modules as the one for CUDA, and code for AMD GPUs in place
    of NVIDIA's. Told by the sections for it, where nothing in the package has CUDA device code or is linked with CUDA;
    packages that have both load what fits.""",
    source="the sections that clang's offload bundler writes; HIP's runtime library",
    fix="take the build for CUDA: another index, or another local version, than +rocm",
)
def made_for_amd(whole: Whole) -> Iterator[Found]:
    if found := _for_amd(whole.survey.libraries):
        yield Found(
            message="it is built for AMD GPUs (ROCm): nothing in it runs on NVIDIA's",
            evidence=tuple(found[:3]),
        )


def _for_amd(found: Sequence[Library]) -> list[str]:
    """The libraries with code for AMD's GPUs, of a package that has nothing of CUDA."""
    if any(each.device_code or each.cudart or any(map(packages.is_cuda_library, each.needed)) for each in found):
        return []
    return [each.path for each in found if any(finding.rule == "amd-code" for finding in each.findings)]


@rule(
    "no-device-code",
    severity="note",
    why="""Without device code, or without kernels in it, there is nothing that a GPU could refuse, and nothing
    that shows it is used. Packages that compile their kernels at run time look like this.""",
    source="the sections of the files",
    fix="none needed if it compiles its kernels at run time",
)
def no_device_code(whole: Whole) -> Iterator[Found]:
    found = whole.survey.libraries
    loadable = [each for each in found if is_loadable(each) or whole.survey.kind == "file"]
    if not any(each.path in whole.with_code for each in loadable) and not _for_amd(found):
        count, there = len(found), _what_is_there(whole.survey, loadable)
        yield Found(
            message=f"there is {there}: the files do not show whether a GPU can be used",
            evidence=(f"{count} {'library was' if count == 1 else 'libraries were'} read",),
        )


def _what_is_there(survey: Survey, loadable: Sequence[Library]) -> str:
    with_code = [each for each in survey.libraries if each.device_code and not is_driver_copy(each)]
    if not with_code:
        return "no CUDA device code in it"
    tools = [each.path for each in loadable if each in with_code and only_for_tools(each, survey)]
    if tools and len(tools) == len([each for each in loadable if each in with_code]):
        return f"CUDA device code only in libraries of a profiler ({a_few(tools)})"
    if any(each in loadable for each in with_code):
        return "no kernel that a driver could load in its CUDA device code"
    return f"CUDA device code only in files that are not loaded ({a_few([each.path for each in with_code])})"


@rule(
    "driver-library-bundled",
    severity="warning",
    why="""The driver's own libraries must match the kernel module of the machine: a copy in a package matches only the
    machine it was taken from. The device code inside belongs to the driver, so it says nothing about the package.""",
    source="NVIDIA: driver README, installed components",
    fix="build it without them: auditwheel repair --exclude libcuda.so.1, or cuwheel repair",
)
def driver_library_bundled(whole: Whole) -> Iterator[Found]:
    if whole.survey.kind == "file":
        return
    found = [
        each.path for each in whole.survey.libraries if is_driver_copy(each) and "stubs" not in each.path.split("/")
    ]
    if found:
        yield Found(
            message=f"the driver's own libraries are bundled, but must come from the machine: {a_few(found)}",
            evidence=tuple(found[:3]),
        )


@rule(
    "gpu-not-known",
    severity="note",
    why="What runs depends on the capability of the GPU; without it nothing can be said about the device code.",
    source="the machine as it was described or found",
    fix="name it: --on h100, or a capability, a machine profile or a fleet file",
)
def gpu_not_known(whole: Whole) -> Iterator[Found]:
    if whole.machine.capability is None:
        yield Found(
            message="the machine's GPU is not known",
            evidence=(whole.machine.gpu or "none was found",),
        )


RULES = (wheel_tag_mismatch, no_library_to_load, made_for_amd, no_device_code, driver_library_bundled, gpu_not_known)
