"""The facts that a cause's file may name under `[[fact]] when`: each a small question to what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.diagnosis.known import Known, parsed_arch
from cuwheel.facts import toolkits, versions
from cuwheel.verdicts.choice import INSUFFICIENT_DRIVER, NO_KERNEL_IMAGE, SYMBOL_NOT_FOUND, UNSUPPORTED_PTX

if TYPE_CHECKING:
    from collections.abc import Callable


def gcc_newer_than_nvcc_takes(known: Known) -> bool:
    return _nvcc_takes_gcc(known) is False


def gcc_fits_nvcc(known: Known) -> bool:
    return _nvcc_takes_gcc(known) is True


def _nvcc_takes_gcc(known: Known) -> bool | None:
    """None: not known."""
    gcc, row = known.version("gcc"), known.toolkit
    limit = row.host_compilers.gcc_max if row else None
    return versions.major(gcc) <= limit if gcc and limit else None


def arch_was_dropped(known: Known) -> bool:
    """No toolkit of today compiles for it any more, and this nvcc is not one of those that still did."""
    text, row = known.version("arch"), known.toolkit
    arch = parsed_arch(text) if text else None
    if arch is None or (row and row.supports(arch)):
        return False
    newest = toolkits.newest_toolkit()
    older = [each for each in newest.architectures if each.isdigit() and int(each) > arch.capability.number]
    supporting = toolkits.toolkits_supporting(arch)
    if row and supporting:
        return versions.key(row.version) > versions.key(supporting[-1].version)
    return not newest.supports(arch) and len(older) == len([each for each in newest.architectures if each.isdigit()])


def arch_is_newer_than_nvcc(known: Known) -> bool:
    text, row = known.version("arch"), known.toolkit
    arch = parsed_arch(text) if text else None
    supporting = toolkits.toolkits_supporting(arch) if arch else ()
    if row and supporting:
        return versions.key(row.version) < versions.key(supporting[0].version)
    return arch is not None and toolkits.newest_toolkit().supports(arch)


def toolkit_dropped_arch(known: Known) -> bool:
    """As the tables know it of this very nvcc."""
    return known.toolkit is not None and arch_was_dropped(known)


def toolkit_precedes_arch(known: Known) -> bool:
    return known.toolkit is not None and arch_is_newer_than_nvcc(known)


def gpu_is_no_jetson(known: Known) -> bool:
    return known.is_jetson is False


def on_jetson(known: Known) -> bool:
    return "jetson" in known.situations


def not_on_jetson(known: Known) -> bool:
    """Known to be something else: an x86 machine, Windows."""
    return "jetson" not in known.situations and (
        bool(known.situations & {"windows", "macos", "wsl"}) or (known.profile is not None)
    )


def on_wsl(known: Known) -> bool:
    return "wsl" in known.situations


def in_a_container(known: Known) -> bool:
    return "container" in known.situations


def toolkit_differs_from_torch(known: Known) -> bool:
    nvcc, cuda = known.version("nvcc"), known.version("torch_cuda")
    return bool(nvcc and cuda and versions.major(nvcc) != versions.major(cuda))


def several_toolkits(known: Known) -> bool:
    return known.profile is not None and len({each.root for each in known.profile.toolkits if each.nvcc}) > 1


def no_nvcc(known: Known) -> bool:
    return known.profile is not None and not any(each.nvcc for each in known.profile.toolkits)


def gpu_present(known: Known) -> bool:
    return known.profile is not None and bool(known.profile.gpus)


def driver_below_floor(known: Known) -> bool:
    driver, cuda = known.version("driver"), known.version("torch_cuda") or known.version("nvcc")
    floor = toolkits.runtime_floor(cuda) if cuda else None
    return bool(driver and floor and not versions.at_least(driver, floor))


def glibc_clashes(known: Known) -> bool:
    row, glibc = known.toolkit, known.version("glibc")
    return bool(row and glibc and toolkits.glibc_clash(row, glibc))


def two_toolkits_in_log(known: Known) -> bool:
    """Paths, or tools, of two releases: which one compiled is then the question."""
    seen = {versions.minor(each) for name in ("nvcc", "toolkit_path") for each in known.values(name)}
    return len(seen) > 1


def cmake_mixes_toolkits(known: Known) -> bool:
    """Its compiler is of one release, the libraries that it found of another."""
    compiler, libraries = known.version("cmake_nvcc"), known.version("cmake_toolkit")
    return bool(compiler and libraries and versions.minor(compiler) != versions.minor(libraries))


def library_of_another_cuda(known: Known) -> bool:
    """The library that is missing belongs to another major than everything that is here."""
    majors = known.filled().get("library_cuda")
    here = {versions.major(each) for name in ("torch_cuda", "nvcc", "driver_cuda") for each in known.values(name)}
    here |= {int(tag[:2]) for tag in known.values("torch_cu") if len(tag) > 2}  # noqa: PLR2004 - 118, not a letter
    return majors is not None and bool(here) and int(majors) not in here


def nvcc_older_than_wanted_arch(known: Known) -> bool:
    """The build is for an architecture that this nvcc, whoever chose it, does not know yet."""
    nvcc, wanted = known.version("nvcc"), known.version("wanted_arch")
    arch = parsed_arch(wanted) if wanted else None
    supporting = toolkits.toolkits_supporting(arch) if arch else ()
    return bool(nvcc and supporting and versions.key(nvcc) < versions.key(supporting[0].version))


def toolkit_is_recent(known: Known) -> bool:
    """Of the last two majors: what it does not have was removed, most likely."""
    nvcc = known.version("nvcc")
    return bool(nvcc and versions.major(nvcc) >= toolkits.newest_toolkit().major - 1)


def toolkit_is_old(known: Known) -> bool:
    nvcc = known.version("nvcc")
    return bool(nvcc and versions.major(nvcc) < toolkits.newest_toolkit().major - 1)


def in_a_cuwheel_build(known: Known) -> bool:
    return "build" in known.situations


def _predicted(code: int) -> Callable[[Known], bool]:
    return lambda known: known.version("predicted_error") == str(code)


CONDITIONS: dict[str, Callable[[Known], bool]] = {
    "gcc-newer-than-nvcc-takes": gcc_newer_than_nvcc_takes,
    "gcc-fits-nvcc": gcc_fits_nvcc,
    "arch-was-dropped": arch_was_dropped,
    "arch-is-newer-than-nvcc": arch_is_newer_than_nvcc,
    "toolkit-dropped-arch": toolkit_dropped_arch,
    "toolkit-precedes-arch": toolkit_precedes_arch,
    "gpu-is-no-jetson": gpu_is_no_jetson,
    "on-jetson": on_jetson,
    "not-on-jetson": not_on_jetson,
    "on-wsl": on_wsl,
    "in-a-container": in_a_container,
    "toolkit-differs-from-torch": toolkit_differs_from_torch,
    "several-toolkits": several_toolkits,
    "no-nvcc": no_nvcc,
    "gpu-present": gpu_present,
    "driver-below-floor": driver_below_floor,
    "glibc-clashes": glibc_clashes,
    "two-toolkits-in-log": two_toolkits_in_log,
    "cmake-mixes-toolkits": cmake_mixes_toolkits,
    "library-of-another-cuda": library_of_another_cuda,
    "nvcc-older-than-wanted-arch": nvcc_older_than_wanted_arch,
    "toolkit-is-recent": toolkit_is_recent,
    "toolkit-is-old": toolkit_is_old,
    "in-a-cuwheel-build": in_a_cuwheel_build,
    "check-predicts-no-kernel-image": _predicted(NO_KERNEL_IMAGE.code),
    "check-predicts-symbol-not-found": _predicted(SYMBOL_NOT_FOUND.code),
    "check-predicts-unsupported-ptx": _predicted(UNSUPPORTED_PTX.code),
    "check-predicts-insufficient-driver": _predicted(INSUFFICIENT_DRIVER.code),
}
