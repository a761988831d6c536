"""May the package be installed on the machine, and does it have a library to load there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.compat import tags
from cuwheel.compat.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.compat.check_rules.case import Whole
    from cuwheel.inspection.values import Library


@rule(
    "wheel-tag-mismatch",
    severity="error",
    why="""An installer takes a wheel only if one of its tags fits: the Python version, its ABI, the system, the
    processor, and for manylinux the C library.""",
    source="PEP 425 and PEP 600",
    fix="take the wheel whose tags fit this machine, or build one on it",
)
def wheel_tag_mismatch(whole: Whole) -> Iterator[Found]:
    told = whole.survey.distribution
    found = tags.fits(told.tags, whole.machine) if told else ()
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
    "no-device-code",
    severity="note",
    why="""Without device code, or with none that holds a kernel, there is nothing that a GPU could refuse, and nothing
    that says it is used. Packages that compile their kernels at run time look like this.""",
    source="the sections of the files",
    fix="none needed if it compiles its kernels at run time",
)
def no_device_code(whole: Whole) -> Iterator[Found]:
    libraries = whole.survey.libraries
    if not any(each.device_code and not _without_kernels(each) for each in libraries):
        count = len(libraries)
        there = any(each.device_code for each in libraries)
        what = "no kernel in its CUDA device code" if there else "no CUDA device code in it"
        yield Found(
            message=f"there is {what}: whether a GPU can be used cannot be told from the files",
            evidence=(f"{count} {'library was' if count == 1 else 'libraries were'} read",),
        )


def _without_kernels(library: Library) -> bool:
    return bool(library.containers) and all(each.without_kernels for each in library.containers)


@rule(
    "gpu-not-known",
    severity="note",
    why="What runs depends on the capability of the GPU; without it nothing can be said of the device code.",
    source="the machine as it was described or found",
    fix="say which: --on h100, or a capability, a machine profile or a fleet file",
)
def gpu_not_known(whole: Whole) -> Iterator[Found]:
    if whole.machine.capability is None:
        yield Found(
            message=f"of {whole.machine.name} no GPU is known",
            evidence=(whole.machine.gpu or "none was found",),
        )


RULES = (wheel_tag_mismatch, no_library_to_load, no_device_code, gpu_not_known)
