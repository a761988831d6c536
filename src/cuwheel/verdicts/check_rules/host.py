"""Does the library load at all: processor, system, C library, what it needs; and has the package one to load?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.facts import packages
from cuwheel.support.finding import finding
from cuwheel.verdicts import wheel_tags
from cuwheel.verdicts.check_rules.case import LibraryCase, PackageCase, unreadable
from cuwheel.verdicts.loading import is_loadable
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts.modules import is_driver_copy
from cuwheel_core.verdicts.predict import only_for_tools
from cuwheel_core.wheel.tags import PROCESSORS

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.verdicts.library_sources import Needed
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.finding import Finding


_SYSTEMS = {"elf": "linux", "pe": "windows"}
_NAMED = 20  # symbols


def wrong_processor(case: LibraryCase) -> Iterator[Finding]:
    made_for, has = case.library.machine, case.machine.cpu
    if has and made_for in PROCESSORS and made_for != has:
        yield finding(
            "wrong-processor",
            predicate=f"is for {made_for} and this machine has {has}",
            evidence=(f"its header says {made_for}",),
            fix=f"take the wheel for {has}",
        )


def wrong_system(case: LibraryCase) -> Iterator[Finding]:
    made_for, has = _SYSTEMS.get(case.library.format), case.machine.os
    if made_for and has and made_for != has:
        yield finding(
            "wrong-system",
            predicate=f"is for {made_for.capitalize()} and this machine runs {has.capitalize()}",
            evidence=(f"its format is {case.library.format.upper()}",),
            fix=f"take the wheel for {has.capitalize()}",
        )


def glibc_newer_than_system(case: LibraryCase) -> Iterator[Finding]:
    wants, has = case.library.glibc, case.machine.glibc
    if wants and has and not versions.at_least(has, wants):
        yield finding(
            "glibc-newer-than-system",
            predicate=f"needs glibc {wants} and this machine has {has}: it fails at import",
            evidence=(f"a symbol of version GLIBC_{wants}",),
        )


def libstdcxx_newer_than_system(case: LibraryCase) -> Iterator[Finding]:
    wants, has = case.library.glibcxx, case.machine.glibcxx
    if wants and has and not versions.at_least(has, wants):
        yield finding(
            "libstdcxx-newer-than-system",
            predicate=f"needs GLIBCXX_{wants} and this machine's libstdc++ only has {has}: it fails at import",
            evidence=(f"a symbol of version GLIBCXX_{wants}",),
        )


def needed_library_missing(case: LibraryCase) -> Iterator[Finding]:
    missing = [each for each in case.needed if each.place == "nowhere" and not _is_framework(each)]
    others = {each.soname: other for each in missing if (other := _other_major(each, case))}
    plain = [each for each in missing if each.soname not in others]
    if plain:
        packages_ = sorted({each.brought_by for each in plain if each.brought_by})
        absent = f"which {'were' if len(plain) > 1 else 'was'} not found"
        yield finding(
            "needed-library-missing",
            predicate=f"needs {a_few([each.soname for each in plain])}, {absent}: it fails at import",
            evidence=("searched the wheel, the environment, LD_LIBRARY_PATH and the system",),
            fix=f"pip install {' '.join(packages_)}" if packages_ else "install the package that provides it",
        )


def cuda_major_differs(case: LibraryCase) -> Iterator[Finding]:
    others = {each.soname: other for each in case.needed if (other := _other_major(each, case))}
    if others:
        majors = " or ".join(
            sorted({str(major) for soname in others for major in cuda_libraries.library_majors(soname)})
        )
        has = a_few(sorted(set(others.values())))
        instead = "the environment has" if case.machine.libraries is not None else f"{has} brings"
        brought = {each.brought_by for each in case.needed if each.soname in others} - {""}
        yield finding(
            "cuda-major-differs",
            predicate=f"needs {a_few(list(others))} of CUDA {majors}, and {instead} another major: it fails at import",
            evidence=(
                *([f"the environment has {has}"] if case.machine.libraries is not None else []),
                *(f"{a_few(list(others))} comes with {each}" for each in sorted(brought)),
            ),
        )
    elif case.machine.libraries is None and case.machine.torch_cuda:
        has_major = versions.major(case.machine.torch_cuda)
        unknown = [
            each.soname
            for each in case.needed
            if each.place == "unknown" and cuda_libraries.library_majors(each.soname)
        ]
        strangers = [each for each in unknown if has_major not in cuda_libraries.library_majors(each)]
        if strangers:
            yield finding(
                "cuda-major-differs",
                predicate=f"needs {a_few(strangers)}, and torch brings those of CUDA {has_major}",
                evidence=(f"torch is built for CUDA {case.machine.torch_cuda}",),
                fix="install the packages of its own CUDA major beside them, or take a build for torch's",
                severity="warning",
            )


def torch_missing(case: LibraryCase) -> Iterator[Finding]:
    missing = [each.soname for each in case.needed if each.place == "nowhere" and _is_framework(each)]
    if missing:
        yield finding(
            "torch-missing",
            predicate=f"needs {a_few(missing)}, but torch is not installed in this environment",
            evidence=tuple(f"needed: {each}" for each in missing[:3]),
        )


def torch_abi_differs(case: LibraryCase) -> Iterator[Finding]:
    own, torch = case.library.cxx11_abi, case.machine.torch_cxx11_abi
    uses = any(packages.framework_of(soname) == "torch" for soname in case.library.needed)
    if uses and own is not None and torch is not None and own != torch:
        yield finding(
            "torch-abi-differs",
            predicate=f"was compiled with _GLIBCXX_USE_CXX11_ABI={int(own)} and torch with {int(torch)}: undefined "
            "symbol at import",
            evidence=(f"its symbols have the {'new' if own else 'old'} C++ string",),
        )


def torch_symbols_missing(case: LibraryCase) -> Iterator[Finding]:
    torch = case.torch
    if torch is None or case.machine.torch != torch.version or any(each.place == "unknown" for each in case.needed):
        return  # what nobody knows may bring them
    missing = [name for name in case.library.torch_symbols if name in torch.asked and name not in torch.names]
    if missing:
        from cuwheel.device_code import demangle  # noqa: PLC0415 - few libraries miss any

        readable = demangle.demangled(missing[:_NAMED])
        what = "a symbol" if len(missing) == 1 else f"{len(missing)} symbols"
        yield finding(
            "torch-symbols-missing",
            predicate=f"needs {what} that torch {torch.version} does not have: undefined symbol at import",
            evidence=tuple(readable.get(name, name) for name in missing[:_NAMED]),
        )


def _is_framework(needed: Needed) -> bool:
    return packages.framework_of(needed.soname) is not None


def _other_major(needed: Needed, case: LibraryCase) -> str | None:
    """The same component for another CUDA major, where that is there instead, or the framework that brings it."""
    if needed.place != "nowhere" or not cuda_libraries.library_majors(needed.soname):
        return None
    if needed.found:
        return needed.found
    component = cuda_libraries.find_library(needed.soname).component
    for there in case.machine.libraries or ():
        if cuda_libraries.library_majors(there) and cuda_libraries.find_library(there).component == component:
            return there
    return None


RULES = (
    wrong_processor,
    wrong_system,
    glibc_newer_than_system,
    libstdcxx_newer_than_system,
    needed_library_missing,
    cuda_major_differs,
    torch_missing,
    torch_abi_differs,
    torch_symbols_missing,
)


# May the package be installed on the machine, and does it have a library to load there?


def wheel_tag_mismatch(whole: PackageCase) -> Iterator[Finding]:
    distribution = whole.survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, whole.machine) if distribution else ()
    if found and found[0].problems:
        yield finding(
            "wheel-tag-mismatch",
            predicate=f"cannot be installed: {' and '.join(found[0].problems)}",
            evidence=tuple(f"tag {each.tag}" for each in found[:3]),
        )


def no_library_to_load(whole: PackageCase) -> Iterator[Finding]:
    if whole.loading.missing:
        yield finding(
            "no-library-to-load",
            predicate=f"has no library to load here: {whole.loading.missing}",
            evidence=tuple(each.path for each in whole.survey.libraries if each.device_code)[:4],
            fix=whole.loading.fixes or None,
        )


def made_for_amd(whole: PackageCase) -> Iterator[Finding]:
    if found := _for_amd(whole.survey.libraries):
        yield finding(
            "made-for-amd",
            predicate="is built for AMD GPUs (ROCm): nothing in it runs on NVIDIA's",
            evidence=tuple(found[:3]),
        )


def _for_amd(found: Sequence[Library]) -> list[str]:
    """The libraries with code for AMD's GPUs, of a package that has nothing of CUDA."""
    if any(each.device_code or each.cudart or any(map(cuda_libraries.is_cuda_library, each.needed)) for each in found):
        return []
    return [each.path for each in found if any(finding.rule == "amd-code" for finding in each.findings)]


def no_device_code(whole: PackageCase) -> Iterator[Finding]:
    found = whole.survey.libraries
    loadable = [each for each in found if is_loadable(each) or whole.survey.kind == "file"]
    if unreadable(whole.survey) or any(each.path in whole.with_code for each in loadable):
        return
    if not _for_amd(found):
        count, there = len(found), _what_is_there(whole.survey, loadable)
        yield finding(
            "no-device-code",
            f"there is {there}: the files do not show whether a GPU can be used",
            evidence=(f"{count} {'library was' if count == 1 else 'libraries were'} read",),
        )


def _what_is_there(survey: Survey, loadable: Sequence[Library]) -> str:
    with_code = [each for each in survey.libraries if each.device_code and not is_driver_copy(each)]
    if not with_code:
        return "no CUDA device code in it"
    tools = [each.path for each in loadable if each in with_code and only_for_tools(each, survey.distribution)]
    if tools and len(tools) == len([each for each in loadable if each in with_code]):
        return f"CUDA device code only in libraries of a profiler ({a_few([file_name(each) for each in tools], 2)})"
    if any(each in loadable for each in with_code):
        return "no kernel that a driver could load in its CUDA device code"
    return f"CUDA device code only in files that are not loaded ({a_few([each.path for each in with_code])})"


def driver_library_bundled(whole: PackageCase) -> Iterator[Finding]:
    if whole.survey.kind == "file":
        return
    found = [
        each.path for each in whole.survey.libraries if is_driver_copy(each) and "stubs" not in each.path.split("/")
    ]
    if found:
        yield finding(
            "driver-library-bundled",
            f"the driver's own libraries are bundled, but must come from the machine: {a_few(found)}",
            evidence=tuple(found[:3]),
        )


GPU_NOT_KNOWN = "the machine's GPU is not known"


def gpu_not_known(whole: PackageCase) -> Iterator[Finding]:
    if whole.machine.capability is None:
        yield finding("gpu-not-known", GPU_NOT_KNOWN, evidence=(whole.machine.gpu or "none was found",))


PACKAGE_RULES = (
    wheel_tag_mismatch,
    no_library_to_load,
    made_for_amd,
    no_device_code,
    driver_library_bundled,
    gpu_not_known,
)
