"""Does the library load at all: processor, system, C library, and the libraries it needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code import demangle
from cuwheel.facts import packages, versions
from cuwheel.support.wording import a_few
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.verdicts.check_rules.case import Case
    from cuwheel.verdicts.library_sources import Needed

_SYSTEMS = {"elf": "linux", "pe": "windows"}
_NAMED = 20  # symbols
_PROCESSORS = ("x86_64", "aarch64", "ppc64le", "i686")


@rule(
    "wrong-processor",
    severity="error",
    why="A library holds machine code for one kind of processor; another cannot load it, whatever its GPU.",
    source="the header of the file",
    fix="take the wheel for this processor",
)
def wrong_processor(case: Case) -> Iterator[Found]:
    made_for, has = case.library.machine, case.machine.cpu
    if has and made_for in _PROCESSORS and made_for != has:
        yield Found(
            message=f"it is for {made_for} and this machine has {has}",
            evidence=(f"its header says {made_for}",),
            fix=f"take the wheel for {has}",
        )


@rule(
    "wrong-system",
    severity="error",
    why="ELF libraries load on Linux and PE libraries on Windows.",
    source="the header of the file",
    fix="take the wheel for this system",
)
def wrong_system(case: Case) -> Iterator[Found]:
    made_for, has = _SYSTEMS.get(case.library.format), case.machine.os
    if made_for and has and made_for != has:
        yield Found(
            message=f"it is for {made_for.capitalize()} and this machine runs {has.capitalize()}",
            evidence=(f"its format is {case.library.format.upper()}",),
            fix=f"take the wheel for {has.capitalize()}",
        )


@rule(
    "glibc-newer-than-system",
    severity="error",
    why="""A symbol version above that of the machine's C library fails at import: version `GLIBC_2.34' not found.""",
    source="ELF symbol versioning (Linux Standard Base): the version needs of the file",
    fix="take a wheel with an older manylinux tag, or build it on an older system",
)
def glibc_newer_than_system(case: Case) -> Iterator[Found]:
    wants, has = case.library.glibc, case.machine.glibc
    if wants and has and not versions.at_least(has, wants):
        yield Found(
            message=f"it needs glibc {wants} and this machine has {has}: it fails at import",
            evidence=(f"a symbol of version GLIBC_{wants}",),
        )


@rule(
    "libstdcxx-newer-than-system",
    severity="error",
    why="""A symbol version above that of the machine's libstdc++ fails at import: `GLIBCXX_3.4.30' not found.""",
    source="ELF symbol versioning (Linux Standard Base): the version needs of the file",
    fix="conda install -c conda-forge libstdcxx-ng   (or build it with an older compiler)",
)
def libstdcxx_newer_than_system(case: Case) -> Iterator[Found]:
    wants, has = case.library.glibcxx, case.machine.glibcxx
    if wants and has and not versions.at_least(has, wants):
        yield Found(
            message=f"it needs GLIBCXX_{wants} and this machine's libstdc++ only has {has}: it fails at import",
            evidence=(f"a symbol of version GLIBCXX_{wants}",),
        )


@rule(
    "needed-library-missing",
    severity="error",
    why="""A NEEDED library that is not found makes the import fail: cannot open shared object file. It is looked
    for in the wheel along RPATH and RUNPATH, in the packages it requires, in the environment's NVIDIA packages, in
    LD_LIBRARY_PATH, in the system's folders and toolkits.""",
    source="ld.so(8)",
    fix="install the package that provides it",
)
def needed_library_missing(case: Case) -> Iterator[Found]:
    missing = [each for each in case.needed if each.place == "nowhere" and not _is_framework(each)]
    others = {each.soname: other for each in missing if (other := _other_major(each, case))}
    plain = [each for each in missing if each.soname not in others]
    if plain:
        packages_ = sorted({each.brought_by for each in plain if each.brought_by})
        yield Found(
            message=f"it needs {a_few([each.soname for each in plain])}, which was not found: it fails at import",
            evidence=("searched the wheel, the environment, LD_LIBRARY_PATH and the system",),
            fix=f"pip install {' '.join(packages_)}" if packages_ else "install the package that provides it",
        )


@rule(
    "cuda-major-differs",
    severity="error",
    why="""CUDA's libraries carry their major in their name: libcublas.so.12 and libcublas.so.13 do not replace each
    other. A package for one major does not load where only the other is installed.""",
    source="ld.so(8); the sonames of NVIDIA's packages",
    fix="take the build of this package for the CUDA that is installed, or install that major's packages",
)
def cuda_major_differs(case: Case) -> Iterator[Found]:
    others = {each.soname: other for each in case.needed if (other := _other_major(each, case))}
    if others:
        majors = " or ".join(sorted({str(major) for soname in others for major in packages.library_majors(soname)}))
        has = a_few(sorted(set(others.values())))
        instead = "the environment has" if case.machine.libraries is not None else f"{has} brings"
        brought = {each.brought_by for each in case.needed if each.soname in others} - {""}
        yield Found(
            message=f"it needs {a_few(list(others))} of CUDA {majors}, and {instead} another major: it fails at import",
            evidence=(
                *([f"the environment has {has}"] if case.machine.libraries is not None else []),
                *(f"{a_few(list(others))} comes with {each}" for each in sorted(brought)),
            ),
        )
    elif case.machine.libraries is None and case.machine.torch_cuda:
        has_major = versions.major(case.machine.torch_cuda)
        unknown = [
            each.soname for each in case.needed if each.place == "unknown" and packages.library_majors(each.soname)
        ]
        strangers = [each for each in unknown if has_major not in packages.library_majors(each)]
        if strangers:
            yield Found(
                message=f"it needs {a_few(strangers)}, and torch brings those of CUDA {has_major}",
                evidence=(f"torch is built for CUDA {case.machine.torch_cuda}",),
                fix="install the packages of its own CUDA major beside them, or take a build for torch's",
                severity="warning",
            )


@rule(
    "torch-missing",
    severity="error",
    why="An extension of torch links with its libraries, which only the package torch brings.",
    source="ld.so(8); the files of the package torch",
    fix="pip install torch   (the version that the package was built for)",
)
def torch_missing(case: Case) -> Iterator[Found]:
    missing = [each.soname for each in case.needed if each.place == "nowhere" and _is_framework(each)]
    if missing:
        yield Found(
            message=f"it needs {a_few(missing)}, but torch is not installed in this environment",
            evidence=tuple(f"needed: {each}" for each in missing[:3]),
        )


@rule(
    "torch-abi-differs",
    severity="error",
    why="""torch is compiled with the old or the new C++ string (_GLIBCXX_USE_CXX11_ABI). An extension compiled with
    the other fails at import with an undefined symbol.""",
    source="libstdc++ manual, dual ABI; torch.compiled_with_cxx11_abi()",
    fix="take the build for this torch, or compile it on this machine",
)
def torch_abi_differs(case: Case) -> Iterator[Found]:
    own, torch = case.library.cxx11_abi, case.machine.torch_cxx11_abi
    uses = any(packages.framework_of(soname) == "torch" for soname in case.library.needed)
    if uses and own is not None and torch is not None and own != torch:
        yield Found(
            message=f"it was compiled with _GLIBCXX_USE_CXX11_ABI={int(own)} and torch with {int(torch)}: undefined "
            "symbol at import",
            evidence=(f"its symbols have the {'new' if own else 'old'} C++ string",),
        )


@rule(
    "torch-symbols-missing",
    severity="error",
    why="""An extension takes functions of torch's C++ interface by their mangled names, and that interface changes with
    nearly every release. One name that the installed torch does not export makes the import fail: undefined symbol.""",
    source="ld.so(8); the dynamic symbols of the extension and of torch's libraries",
    fix="take the build for this torch, or compile it on this machine",
)
def torch_symbols_missing(case: Case) -> Iterator[Found]:
    torch = case.torch
    if torch is None or case.machine.torch != torch.version or any(each.place == "unknown" for each in case.needed):
        return  # what nobody knows may bring them
    missing = [name for name in case.library.torch_symbols if name in torch.asked and name not in torch.names]
    if missing:
        readable = demangle.demangled(missing[:_NAMED])
        what = "a symbol" if len(missing) == 1 else f"{len(missing)} symbols"
        yield Found(
            message=f"it needs {what} that torch {torch.version} does not have: undefined symbol at import",
            evidence=tuple(readable.get(name, name) for name in missing[:_NAMED]),
        )


def _is_framework(needed: Needed) -> bool:
    return packages.framework_of(needed.soname) is not None


def _other_major(needed: Needed, case: Case) -> str | None:
    """The same component for another CUDA major, where that is there instead, or the framework that brings it."""
    if needed.place != "nowhere" or not packages.library_majors(needed.soname):
        return None
    if needed.found:
        return needed.found
    component = packages.find_library(needed.soname).component
    for there in case.machine.libraries or ():
        if packages.library_majors(there) and packages.find_library(there).component == component:
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
