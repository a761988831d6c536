"""Is there device code that the GPU can use, and does the driver get to it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.support.finding import finding
from cuwheel.verdicts import fixes
from cuwheel.verdicts.check_rules.case import LibraryCase, error_words
from cuwheel_core.facts import cuda_libraries, gpus, versions
from cuwheel_core.facts.arch import Arch
from cuwheel_core.fix import Fix, led_by
from cuwheel_core.support.wording import a_few, file_name, rough_seconds, size
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import (
    INVALID_PTX,
    INVALID_SOURCE,
    INVALID_SYMBOL,
    JIT_DISABLED,
    NO_KERNEL_IMAGE,
    SYMBOL_NOT_FOUND,
    UNSUPPORTED_PTX,
    serves,
)

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.verdicts.choice import CudaError


_NONE_NEEDED = Fix(text="none needed", changes=("nothing",))
_NOTHING_FITS = (NO_KERNEL_IMAGE, INVALID_PTX, INVALID_SYMBOL)


def _failed_by(case: LibraryCase, error: CudaError) -> bool:
    code = case.code
    return code.outcome in ("fails", "partial") and not code.link_too_new and code.predicted_error == error


def _holds(case: LibraryCase) -> tuple[str, ...]:
    return tuple(f"a container holds {each}" for each in case.code.missing[:3])


def _more_architectures(case: LibraryCase) -> tuple[Fix, ...]:
    if cuda_libraries.is_cuda_library(cuda_libraries.plain_name(case.library.soname or file_name(case.library.path))):
        text = "take a release of it that has code for this GPU, if there is one: NVIDIA alone builds this library"
        return (Fix(text=text, changes=("release",)),)
    found = fixes.rebuild_fixes(case.library, case.machine)
    if found and not fixes.its_cuda_can_build(case.library, case.machine):
        built = drivers.cuda_major(case.library)
        return led_by(f"CUDA {built}, which built it, does not compile for this GPU: ", found)
    return found


def no_code_for_gpu(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    error = next((each for each in _NOTHING_FITS if _failed_by(case, each)), None)
    if code.outcome == "fails" and error and not code.absent and case.machine.jit != "forced":
        yield finding(
            "no-code-for-gpu",
            predicate=f"has no code for the {case.gpu}: {error_words(error)}",
            evidence=_holds(case),
            fix=_more_architectures(case) or None,
        )


def code_for_gpu_in_part(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    if code.outcome == "partial" and not code.link_too_new and code.predicted_error and code.containers.none:
        count, total = code.containers.none, case.prediction.containers.total
        fix = _more_architectures(case)
        if fix and code.for_chosen_gpus:
            fix = led_by("none needed where it takes its kernels by the GPU; otherwise ", fix)
        yield finding(
            "code-for-gpu-in-part",
            f"{count} of {total} containers have nothing for the {case.gpu}: their kernels fail with "
            f"{error_words(code.predicted_error)}, the others run",
            evidence=_holds(case),
            fix=fix or None,
            severity="warning" if code.for_chosen_gpus else None,
        )


def device_link_without_code(case: LibraryCase) -> Iterator[Finding]:
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
    yield finding(
        "device-link-without-code",
        predicate=f"is device-linked and has no code for the {case.gpu}; {reason}",
        evidence=_holds(case),
        fix=_more_architectures(case) or None,
    )


def registered_but_absent(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    if code.absent and code.outcome in ("fails", "partial"):
        linked = any(each.device_linked and each.absent for each in case.modules)
        why = "the device link left them out" if linked else "they were compiled for other architectures only"
        yield finding(
            "registered-but-absent",
            f"the code that the {case.gpu} takes lacks kernels or variables that it registers ({why}): "
            f"{error_words(code.predicted_error or SYMBOL_NOT_FOUND)}",
            evidence=tuple(f"it lacks {name}" for name in code.absent[:3]),
            fix="compile every object for each architecture that is linked" if linked else None,
        )


def _driver(case: LibraryCase, knows: str) -> str:
    """The machine's; where that one does not run it at all, the one that it would have to be replaced with."""
    updated = drivers.once_updated(case.library, case.machine)
    if updated == case.machine:
        return f"the driver ({knows})"
    return f"{drivers.driver_in_words(updated)} ({knows}), the oldest that would otherwise do"


def _driver_or_code(case: LibraryCase, cuda: str) -> tuple[Fix, ...]:
    floor = drivers.driver_for(cuda, drivers.system_of(case.library, case.machine))
    return (*fixes.newer_driver_fixes(case.machine, floor, cuda), *_more_architectures(case))


def objects_newer_than_driver(case: LibraryCase) -> Iterator[Finding]:
    if not case.code.link_too_new:
        return
    newest = max(case.library.toolkits, key=versions.key)
    on = drivers.system_of(case.library, case.machine)
    known = drivers.cuda_of_driver(drivers.once_updated(case.library, case.machine), on)
    yield finding(
        "objects-newer-than-driver",
        f"no linked code fits the {case.gpu}, and {_driver(case, f'CUDA {known}')} cannot link objects "
        f"written by CUDA {newest}: {error_words(NO_KERNEL_IMAGE)}",
        evidence=(f"its machine code was written by CUDA {', '.join(case.library.toolkits)}", *_holds(case)),
        fix=_driver_or_code(case, newest),
    )


def ptx_newer_than_driver(case: LibraryCase) -> Iterator[Finding]:
    if not _failed_by(case, UNSUPPORTED_PTX):
        return
    on = drivers.system_of(case.library, case.machine)
    driver = drivers.once_updated(case.library, case.machine)
    known = drivers.ptx_isa(driver, on)
    newest = max((row.ptx_isa for row in case.library.device_code if row.ptx_isa), key=versions.key, default="")
    cuda = drivers.cuda_of_isa(newest) or "a later"
    yield finding(
        "ptx-newer-than-driver",
        predicate=f"has no machine code for the {case.gpu}, and its PTX (ISA {newest}) is newer than "
        f"{_driver(case, f'ISA {known}')}: {error_words(UNSUPPORTED_PTX)}",
        evidence=(
            f"{drivers.driver_in_words(driver)} compiles PTX up to ISA {known}",
            f"PTX ISA {newest} was written by CUDA {cuda}",
            *_holds(case),
        ),
        fix=(*_driver_or_code(case, cuda), *_ahead(case, "without its source, in {}")),
    )


def _ahead(case: LibraryCase, text: str) -> tuple[Fix, ...]:
    """The command that makes machine code of its PTX, where a ptxas can. `text`: with `{}` for how long."""
    from cuwheel.verdicts.ahead_of_time import seconds_ahead  # noqa: PLC0415 - most have machine code
    from cuwheel_core.verdicts.modules import choosing  # noqa: PLC0415
    from cuwheel_core.verdicts.predict import Reach  # noqa: PLC0415

    device = case.machine.capability
    reach = Reach(library=case.library, modules=case.modules, chooses=choosing(case.library, case.modules))
    seconds = seconds_ahead([reach], case.machine)
    if device is None or case.library.signed or seconds is None:
        return ()
    of, wanted = case.survey, ("--compile", str(Arch(device)))
    if of is None or of.kind == "file" or case.library.format == "ptx":  # in a package such a file stays text
        words = (file_name(case.library.path), *wanted, "-o", "OUT")
    elif of.distribution and of.kind == "distribution":
        words = ("--env", "ENV", of.distribution.name, *wanted)
    else:
        words = (file_name(of.target), *wanted, *(() if of.kind == "folder" else ("-o", "OUT")))  # in place
    text = text.format(rough_seconds(*seconds))
    return (Fix(text=text, commands=(("cuwheel", "graft", *words),), changes=("file",)),)


def jit_switched_off(case: LibraryCase) -> Iterator[Finding]:
    if _failed_by(case, JIT_DISABLED):
        yield finding(
            "jit-switched-off",
            f"for the {case.gpu} it has only PTX, and CUDA_DISABLE_PTX_JIT keeps the driver from compiling "
            f"it: {error_words(JIT_DISABLED)}",
            evidence=_holds(case),
            fix=Fix.run("unset", "CUDA_DISABLE_PTX_JIT", changes=("variable",)),
        )
    elif case.machine.jit == "forced" and _failed_by(case, NO_KERNEL_IMAGE):
        yield finding(
            "jit-switched-off",
            f"CUDA_FORCE_PTX_JIT asks for PTX, but it has none for the {case.gpu}: {error_words(NO_KERNEL_IMAGE)}",
            evidence=_holds(case),
            fix=Fix.run("unset", "CUDA_FORCE_PTX_JIT", changes=("variable",)),
        )


def compiled_by_driver(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    taken = [each for each in code.taken if each.how == "jit"]
    if code.outcome == "jit" and code.basis != "relocatable":
        compiler = "nvJitLink" if code.by_linker else "the driver"
        ahead = _ahead(case, "to compile it ahead of time, in about as long")
        yield finding(
            "compiled-by-driver",
            f"for the {case.gpu} {compiler} compiles {a_few(sorted({each.arch for each in taken}))}: it runs, "
            f"and the first start takes longer{_wait(case)}",
            evidence=(
                f"{code.containers.jit} of {case.prediction.containers.total} containers have no machine code for it",
            ),
            fix=(_NONE_NEEDED, *ahead) if ahead else None,
        )


def _wait(case: LibraryCase) -> str:
    """How long all of it takes, as far as the size of the PTX tells."""
    from cuwheel.verdicts.ahead_of_time import bytes_to_compile  # noqa: PLC0415 - most have machine code

    held = bytes_to_compile(case.library, case.code)
    if not held:
        return ""
    least, most = gpus.seconds_to_compile(held)
    return (
        f" ({rough_seconds(least, most)} for all {size(held)} of its PTX; each part is compiled when it is first used)"
    )


def linked_at_load(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    if code.basis == "relocatable" and code.outcome == "jit":
        archs = sorted({each.arch for each in code.taken if not each.linked})
        yield finding(
            "linked-at-load",
            f"no linked code fits the {case.gpu}: the driver links the relocatable objects at load",
            evidence=(f"it takes {' or '.join(archs)} of them",),
        )


def chooses_kernels_itself(case: LibraryCase) -> Iterator[Finding]:
    code = case.code
    if code.basis == "fitting":
        how = "its containers suggest that it chooses" if code.heuristic else "it chooses"
        none, total = code.containers.none, case.prediction.containers.total
        yield finding(
            "chooses-kernels-itself",
            f"{none} of {total} containers hold nothing for the {case.gpu}, and {how} its kernels itself",
            evidence=("guessed from its containers",) if code.heuristic else ("listed in libraries.toml",),
            fix="none needed" if not code.heuristic else "if it fails with error 209 after all, the guess was wrong",
        )


def desktop_code_on_tegra(case: LibraryCase) -> Iterator[Finding]:
    taken = {each.arch for each in case.code.taken if each.how == "compatible"}
    across = {each for each in taken if drivers.across_tegra(each, case.machine)}
    archs = sorted(each for each in across if _nothing_else_fits(each, case))
    if archs:
        to_tegra = drivers.is_tegra(case.machine)
        seen = "sm_80 code was seen running on an Orin, but others doubt it"
        yield finding(
            "desktop-code-on-tegra",
            f"{a_few(archs)}, code for a {'desktop part' if to_tegra else 'Tegra'}, serves the {case.gpu}; "
            "between desktop and Tegra NVIDIA promises nothing",
            evidence=(seen if to_tegra else "it has no other machine code that fits",),
            fix=led_by("none needed where it runs; to be sure, ", _more_architectures(case)),
        )


def _nothing_else_fits(arch: Arch, case: LibraryCase) -> bool:
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
