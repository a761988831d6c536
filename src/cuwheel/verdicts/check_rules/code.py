"""Is there device code that the GPU can use, and does the driver get to it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import architectures, versions
from cuwheel.support.wording import a_few, rough_seconds, size
from cuwheel.verdicts import drivers
from cuwheel.verdicts.check_rules.case import Case, error_words
from cuwheel.verdicts.choice import (
    INVALID_PTX,
    INVALID_SOURCE,
    INVALID_SYMBOL,
    JIT_DISABLED,
    NO_KERNEL_IMAGE,
    SYMBOL_NOT_FOUND,
    UNSUPPORTED_PTX,
    serves,
)
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import DeviceCode
    from cuwheel.facts.arch import Arch
    from cuwheel.verdicts.choice import CudaError
    from cuwheel.verdicts.predict import Taken


_NOTHING_FITS = (NO_KERNEL_IMAGE, INVALID_PTX, INVALID_SYMBOL)


def _failed_by(case: Case, error: CudaError) -> bool:
    code = case.code
    return code.outcome in ("fails", "partial") and not code.link_too_new and code.predicted_error == error


def _holds(case: Case) -> tuple[str, ...]:
    return tuple(f"a container holds {each}" for each in case.code.missing[:3])


def _more_architectures(case: Case) -> str:
    fix = drivers.rebuild_fix(case.library, case.machine)
    if fix and not drivers.its_cuda_can_build(case.library, case.machine):
        return f"CUDA {drivers.cuda_major(case.library)}, which built it, does not compile for this GPU: {fix}"
    return fix


@rule(
    "no-code-for-gpu",
    severity="error",
    why="""Machine code runs on its own major and later minors only (`a` code on its exact capability, `f` code in its
    family), PTX compiles for its own capability and later ones. Where a container has neither, the first launch of a
    kernel in it fails with error 209, no kernel image is available; a file of PTX that does not fit gives 218 when it
    is loaded, a variable in managed memory 13 when it is used.""",
    source="NVIDIA: CUDA programming guide, compatibility; measured on an H200 with fat binaries made for it",
    fix="build it for this GPU too, add PTX that it can compile, or take a release that has code for it",
)
def no_code_for_gpu(case: Case) -> Iterator[Found]:
    code = case.code
    error = next((each for each in _NOTHING_FITS if _failed_by(case, each)), None)
    if code.outcome == "fails" and error and not code.absent and case.machine.jit != "forced":
        yield Found(
            message=f"it has no code for the {case.gpu}: {error_words(error)}",
            evidence=_holds(case),
            fix=_more_architectures(case),
        )


@rule(
    "code-for-gpu-in-part",
    severity="error",
    why="""A library has many containers, one for each compiled file. If it was built with a single list of
    architectures, it is broken for a GPU that one container misses: its kernels fail, the others run. Where
    the missing code is architecture-specific, files had lists of their own, and the library may not launch
    those kernels here: then it is a warning.""",
    source="measured on an H200; libcublasLt, cuDNN, NCCL and cuSPARSELt choose kernels themselves and are excepted",
    fix="build all of it with one list of architectures that has this GPU",
)
def code_for_gpu_in_part(case: Case) -> Iterator[Found]:
    code = case.code
    if code.outcome == "partial" and not code.link_too_new and code.predicted_error and code.containers.none:
        count, total = code.containers.none, sum(_counts(case))
        yield Found(
            message=f"{count} of {total} containers have nothing for the {case.gpu}: their kernels fail with "
            f"{error_words(code.predicted_error)}, the others run",
            evidence=_holds(case),
            fix=_more_architectures(case),
            severity="warning" if code.for_chosen_gpus else None,
        )


def _counts(case: Case) -> tuple[int, int, int, int]:
    counted = case.prediction.containers
    return counted.native, counted.compatible, counted.jit, counted.none


@rule(
    "device-link-without-code",
    severity="error",
    why="""Device-linked code is looked up by name. Where no linked cubin fits, the driver links those of the
    relocatable objects it was made from that have something that fits. Kernels in the others have no name then: error
    500, not 209. If an object that fits calls into one that does not, the link fails and with it every kernel: error
    300. So 500 alone does not mean a wrong platform.""",
    source="measured on an H200 with bitsandbytes and with libraries made for it",
    fix="build and link it for this GPU too, or take a release that has code for it",
)
def device_link_without_code(case: Case) -> Iterator[Found]:
    code = case.code
    if (
        code.absent
        or code.outcome != "fails"
        or not (_failed_by(case, SYMBOL_NOT_FOUND) or _failed_by(case, INVALID_SOURCE))
    ):
        return
    if code.alternatives:
        reason = f"only some of its relocatable objects fit: {error_words(SYMBOL_NOT_FOUND)}, or "
        reason += f"{' or '.join(map(error_words, code.alternatives))}; their names could not be read"
    elif code.predicted_error == INVALID_SOURCE:
        reason = f"relocatable objects that fit need others that do not: {error_words(INVALID_SOURCE)}"
    elif code.mixed_objects:
        reason = f"the relocatable objects that fit have no kernels: {error_words(SYMBOL_NOT_FOUND)}"
    else:
        reason = f"neither its linked code nor its objects fit: {error_words(SYMBOL_NOT_FOUND)}"
    yield Found(
        message=f"it is device-linked and has no code for the {case.gpu}; {reason}",
        evidence=_holds(case),
        fix=_more_architectures(case),
    )


@rule(
    "registered-but-absent",
    severity="error",
    why="""The host code registers kernels and variables by name, whatever the device code holds. A device link leaves
    out the objects that have nothing for its architecture, and a source file may hide a kernel from some of them. The
    code that fits a GPU is taken all the same; what it lacks fails with error 500 when it is first used, the rest
    runs.""",
    source="measured on an H200: objects for sm_90 and sm_80 linked for sm_90, and kernels behind `__CUDA_ARCH__`",
    fix="compile every object for each architecture that is linked, and no kernel for some architectures only",
)
def registered_but_absent(case: Case) -> Iterator[Found]:
    code = case.code
    if code.absent and code.outcome in ("fails", "partial"):
        linked = any(each.device_linked and each.absent for each in case.modules)
        why = "the device link left them out" if linked else "they were compiled for other architectures only"
        yield Found(
            message=f"the code that the {case.gpu} takes lacks kernels or variables that it registers ({why}): "
            f"{error_words(code.predicted_error or SYMBOL_NOT_FOUND)}",
            evidence=tuple(f"it lacks {name}" for name in code.absent[:3]),
            fix="compile every object for each architecture that is linked" if linked else "",
        )


def _driver(case: Case, knows: str) -> str:
    """The machine's; where that one does not run it at all, the one that it would have to be replaced with."""
    updated = drivers.once_updated(case.library, case.machine)
    if updated == case.machine:
        return f"the driver ({knows})"
    return f"{drivers.driver_in_words(updated)} ({knows}), the oldest that would otherwise do"


def _driver_or_code(case: Case, cuda: str) -> str:
    floor = drivers.driver_for(cuda, drivers.system_of(case.library, case.machine))
    return f"{drivers.newer_driver_fix(case.machine, floor, cuda)}, or: {_more_architectures(case)}"


@rule(
    "objects-newer-than-driver",
    severity="error",
    why="""A driver runs machine code of any toolkit of its CUDA major, but links relocatable objects only of toolkits
    up to its own. Where no linked code fits and the objects that fit are machine code of a newer toolkit, every kernel
    fails with error 209, although there is code for the GPU.""",
    source="measured on an H200 with driver 580 (CUDA 13.0) and objects of CUDA 13.4",
    fix="update the driver, or link the device code for this GPU when building",
)
def objects_newer_than_driver(case: Case) -> Iterator[Found]:
    if not case.code.link_too_new:
        return
    newest = max(case.library.toolkits, key=versions.key)
    on = drivers.system_of(case.library, case.machine)
    known = drivers.cuda_of_driver(drivers.once_updated(case.library, case.machine), on)
    yield Found(
        message=f"no linked code fits the {case.gpu}, and {_driver(case, f'CUDA {known}')} cannot link objects "
        f"written by CUDA {newest}: {error_words(NO_KERNEL_IMAGE)}",
        evidence=(f"its machine code was written by CUDA {', '.join(case.library.toolkits)}", *_holds(case)),
        fix=_driver_or_code(case, newest),
    )


@rule(
    "ptx-newer-than-driver",
    severity="error",
    why="""A driver compiles PTX up to the ISA of the toolkit it came for. It takes the highest PTX that fits the GPU,
    and if that one is too new it does not look for an older one beside it: error 222. Machine code of a newer toolkit
    of the same major does run; so does PTX that a package hands to nvJitLink, which is as new as the package needs.""",
    source="measured on an H200 with driver 580 and PTX of CUDA 13.4",
    fix="update the driver, install cuda-compat where the GPU allows it, or ship machine code for the GPU",
)
def ptx_newer_than_driver(case: Case) -> Iterator[Found]:
    if not _failed_by(case, UNSUPPORTED_PTX):
        return
    on = drivers.system_of(case.library, case.machine)
    driver = drivers.once_updated(case.library, case.machine)
    known = drivers.ptx_isa(driver, on)
    newest = max((row.ptx_isa for row in case.library.device_code if row.ptx_isa), key=versions.key, default="")
    cuda = drivers.cuda_of_isa(newest) or "a later"
    yield Found(
        message=f"it has no machine code for the {case.gpu}, and its PTX (ISA {newest}) is newer than "
        f"{_driver(case, f'ISA {known}')}: {error_words(UNSUPPORTED_PTX)}",
        evidence=(
            f"{drivers.driver_in_words(driver)} compiles PTX up to ISA {known}",
            f"PTX ISA {newest} was written by CUDA {cuda}",
            *_holds(case),
        ),
        fix=_driver_or_code(case, cuda),
    )


@rule(
    "jit-switched-off",
    severity="error",
    why="""CUDA_DISABLE_PTX_JIT=1 keeps the driver from compiling PTX: error 223 where there is no machine code.
    CUDA_FORCE_PTX_JIT=1 keeps it from taking machine code: error 209 where there is no PTX.""",
    source="NVIDIA: CUDA programming guide, environment variables; measured on an H200",
    fix="unset the variable, or take a build with machine code for this GPU",
)
def jit_switched_off(case: Case) -> Iterator[Found]:
    if _failed_by(case, JIT_DISABLED):
        yield Found(
            message=f"for the {case.gpu} it has only PTX, and CUDA_DISABLE_PTX_JIT keeps the driver from compiling "
            f"it: {error_words(JIT_DISABLED)}",
            evidence=_holds(case),
            fix="unset CUDA_DISABLE_PTX_JIT",
        )
    elif case.machine.jit == "forced" and _failed_by(case, NO_KERNEL_IMAGE):
        yield Found(
            message=f"CUDA_FORCE_PTX_JIT asks for PTX, but it has none for the {case.gpu}: "
            f"{error_words(NO_KERNEL_IMAGE)}",
            evidence=_holds(case),
            fix="unset CUDA_FORCE_PTX_JIT",
        )


@rule(
    "compiled-by-driver",
    severity="note",
    why="""PTX is compiled by the driver when it is first loaded, and kept in ~/.nv/ComputeCache. The first start
    takes longer, once per user, driver and GPU. How long is estimated from the size of the PTX, by rates that were
    measured; a container whose kernels are never called is not compiled.""",
    source="NVIDIA: CUDA programming guide, just-in-time compilation; rates: architectures.toml",
    fix="none needed; machine code for this GPU would start at once",
)
def compiled_by_driver(case: Case) -> Iterator[Found]:
    code = case.code
    taken = [each for each in code.taken if each.how == "jit"]
    if code.outcome == "jit" and code.basis != "relocatable":
        compiler = "nvJitLink" if code.by_linker else "the driver"
        yield Found(
            message=f"for the {case.gpu} {compiler} compiles {a_few(sorted({each.arch for each in taken}))}: it runs, "
            f"and the first start takes longer{_wait(case)}",
            evidence=(f"{code.containers.jit} of {sum(_counts(case))} containers have no machine code for it",),
        )


def _wait(case: Case) -> str:
    """How long all of it takes, as far as the size of the PTX tells."""
    held = sum(_bytes_of(each, case.library.device_code) for each in case.code.taken if each.how == "jit")
    if not held:
        return ""
    least, most = architectures.seconds_to_compile(held)
    return (
        f" ({rough_seconds(least, most)} for all {size(held)} of its PTX; each part is compiled when it is first used)"
    )


def _bytes_of(taken: Taken, rows: Sequence[DeviceCode]) -> int:
    """Of PTX, decompressed: entries that are alike are taken to be of one size."""
    alike = [
        each
        for each in rows
        if (each.kind, each.arch, each.section, each.ptx_isa) == ("ptx", taken.arch, taken.section, taken.ptx_isa)
    ]
    count = sum(each.count for each in alike)
    return sum(each.real_bytes for each in alike) * min(taken.count, count) // count if count else 0


@rule(
    "linked-at-load",
    severity="note",
    why="""With no linked code that fits, the driver links the relocatable objects when the library is loaded,
    compiling their PTX where they have no machine code. Objects that have nothing that fits are left out: that does no
    harm as long as no kernel is in them and nothing calls into them. It takes time at first start; such a library
    counts as `jit`.""",
    source="measured on an H200: bitsandbytes without its linked cubin still ran, as did objects made for it",
    fix="none needed; linked code for this GPU would start at once",
)
def linked_at_load(case: Case) -> Iterator[Found]:
    code = case.code
    if code.basis == "relocatable" and code.outcome == "jit":
        archs = sorted({each.arch for each in code.taken if not each.linked})
        yield Found(
            message=f"no linked code fits the {case.gpu}: the driver links the relocatable objects at load",
            evidence=(f"it takes {' or '.join(archs)} of them",),
        )


@rule(
    "chooses-kernels-itself",
    severity="note",
    why="""Libraries such as cuBLASLt, cuDNN and NCCL hold kernels for one generation each and pick those that suit
    the machine. A container that holds nothing for it proves nothing; the verdict goes by what fits. For libraries
    that no table lists this is guessed: many containers, a tenth of which share no architecture with the rest, or of
    which no GPU could use all, or where all that miss this GPU are architecture-specific (`sm_90a`, `sm_100f`).""",
    source="measured: of the 2,782 containers of libcublasLt 1,185 hold nothing for 9.0, and it works",
    fix="none needed",
)
def chooses_kernels_itself(case: Case) -> Iterator[Found]:
    code = case.code
    if code.basis == "fitting":
        how = "its containers suggest that it chooses" if code.heuristic else "it chooses"
        yield Found(
            message=f"{code.containers.none} of {sum(_counts(case))} containers hold nothing for the {case.gpu}, and "
            f"{how} its kernels itself",
            evidence=("guessed from its containers",) if code.heuristic else ("listed in libraries.toml",),
            fix="none needed" if not code.heuristic else "if it fails with error 209 after all, the guess was wrong",
        )


@rule(
    "desktop-code-on-tegra",
    severity="note",
    why="""Machine code runs on later minors of its major, but between desktop parts and Tegra NVIDIA promises
    nothing. sm_80 code was seen running on an Orin (8.7), but others doubt it.""",
    source="NVIDIA: CUDA programming guide, binary compatibility; bitsandbytes pull request 1939, where it ran",
    fix="none needed where it runs; machine code for the Tegra itself is certain to run",
)
def desktop_code_on_tegra(case: Case) -> Iterator[Found]:
    taken = {each.arch for each in case.code.taken if each.how == "compatible"}
    across = {each for each in taken if drivers.across_tegra(each, case.machine)}
    archs = sorted(each for each in across if _nothing_else_fits(each, case))
    if archs:
        to_tegra = drivers.is_tegra(case.machine)
        seen = "sm_80 code was seen running on an Orin, but others doubt it"
        yield Found(
            message=f"{a_few(archs)}, code for a {'desktop part' if to_tegra else 'Tegra'}, serves the {case.gpu}; "
            "between desktop and Tegra NVIDIA promises nothing",
            evidence=(seen if to_tegra else "it has no other machine code that fits",),
            fix="none needed where it runs; to be sure, " + _more_architectures(case),
        )


def _nothing_else_fits(arch: Arch, case: Case) -> bool:
    """Whether a container with this machine code has none from the GPU's own side that would serve as well."""
    device = case.machine.capability
    lists = [each.machine_code for each in case.modules if arch in each.machine_code]
    return device is not None and not all(
        any(serves(each, device) and not drivers.across_tegra(each, case.machine) for each in held) for held in lists
    )


RULES = (
    no_code_for_gpu,
    code_for_gpu_in_part,
    device_link_without_code,
    registered_but_absent,
    objects_newer_than_driver,
    ptx_newer_than_driver,
    jit_switched_off,
    chooses_kernels_itself,
    linked_at_load,
    compiled_by_driver,
    desktop_code_on_tegra,
)
