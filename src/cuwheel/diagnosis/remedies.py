"""What fixes name beside versions: folders, programs, packages, indexes, and which of several ways is open.

A log names them in passing: the folder of another toolkit, the requirement that was being built, the Python that ran.
They are facts like versions, so that a fix is a command for what is there.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from cuwheel.diagnosis import told
from cuwheel.facts import packages, torch
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import cuda_libraries, toolkits, versions
from cuwheel_core.facts.arch import Arch, known_arch
from cuwheel_core.verdicts.choice import can_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.diagnosis.text import Log
    from cuwheel.machine.profile import MachineProfile
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.toolkits import Toolkit


class Facts(told.Facts, Protocol):
    @property
    def profile(self) -> MachineProfile | None: ...


TOOLKIT_ROOT, PYTHON, SHIPPED = "toolkit_root", "python_program", "bnb_shipped"
INSTALLED, HELD, WHEEL, ARCH_FLAGS = "installed_package", "held_dll", "wheel_at_hand", "arch_flags"
LISTED, RECORD = (
    "listed_library",
    "record",
)  # a library whose file is there; the folder that a failed call is recorded in
INNER = frozenset(
    {TOOLKIT_ROOT, PYTHON, SHIPPED, INSTALLED, HELD, WHEEL, ARCH_FLAGS, LISTED, RECORD}
)  # of use here, of no interest to people

_MANY = 200  # places in a log that are looked at
_BEFORE = 200  # letters of a path before what is known by its name
_NUMBERED = re.compile(r"cuda(?:-|/v)(\d{1,2}\.\d{1,2})(?![\w.])")  # folded: a backslash is a slash
_PATH = re.compile(r"(?<![\w.+:/-])(?:[a-z]:/[^'<>|:;,=\n]*|/[^\s'<>|:;,=]*)\Z")
_WINDOWS_PYTHON = re.compile(r"(?<!\w)[a-z]:/[^'<>|:;,=\n]{0,150}?/(?:python_embed(?:d?ed)?|\.?venv/scripts)(?=/)")
_SHIPPED = re.compile(r"available pre-compiled versions:((?:\s*-\s*\d{1,2}\.\d{1,2}){1,40})")
_VERSION = re.compile(r"\d{1,2}\.\d{1,2}\Z")
_INSTALLED = re.compile(r"-packages/([a-z][\w-]{1,60})/(?:[\w.+-]{1,80}/){0,8}[\w.+-]{1,80}\.(?:so|pyd)\b")
_HELD = re.compile(r"(?<![\w.+~-])([\w.+-]{1,80}\.(?:dll|pyd))\b")
_WHEEL = re.compile(
    r"(?<![\w.+/:~-])((?:[a-z]:/|[~.]{0,2}/)?[\w.+/-]{1,200}-(?:any|linux\w*|manylinux\w*|musllinux\w*|win\w*|macosx\w*)\.whl)\b"
)
# To the closing quotation mark, or to the next blank; of cmd's `set` to the end of the line.
_FLAGS = re.compile(r"(set )?\bnvcc_(append|prepend)_flags=(?:'([^'\n]{0,2000})'|(\S{0,2000}))")
_ARCH = re.compile(r"(?:compute_|sm_)(\d{2,3})")
_LISTED = re.compile(r"/lib(cu\w+|nv\w+)\.so\.(\d{1,2})(?![\w.]|: (?:cannot|no such))")


def read(log: Log) -> Iterator[tuple[str, str, int]]:
    """Names, values and the lines that have them."""
    folded = log.folded
    for match in islice(_NUMBERED.finditer(folded), _MANY):
        index = log.index_at(match.start())
        start = max(log.span(index)[0], match.start() - _BEFORE)
        if path := _PATH.search(folded[start : match.end()]):
            yield TOOLKIT_ROOT, _as_printed(log, index, start + path.start(), match.end()), index
    for match in islice(_WINDOWS_PYTHON.finditer(folded), 1):
        index = log.index_at(match.start())
        yield PYTHON, _as_printed(log, index, *match.span()) + "\\python.exe", index
    for match in islice(_SHIPPED.finditer(folded), 1):
        for number in re.findall(r"\d+\.\d+", match[1]):
            yield SHIPPED, number, log.index_at(match.start())
    for match in islice(_FLAGS.finditer(folded), _MANY):
        index = log.index_at(match.start())
        value = folded[match.start() : log.span(index)[1]] if match[1] else match[3] or match[4] or ""
        yield from ((ARCH_FLAGS, f"{match[2].upper()}:{number}", index) for number in _ARCH.findall(value))
    for name, pattern in ((INSTALLED, _INSTALLED), (WHEEL, _WHEEL), (HELD, _HELD)):
        for match in islice(pattern.finditer(folded), _MANY):
            index = log.index_at(match.start())
            yield name, _as_printed(log, index, *match.span(1)), index
    for match in islice(_LISTED.finditer(folded), _MANY):
        yield LISTED, f"{match[1]}.{match[2]}", log.index_at(match.start())


def _as_printed(log: Log, index: int, start: int, end: int) -> str:
    begin = log.span(index)[0]
    return log.lines[index][start - begin : end - begin]


# Toolkits that are there: as the log or the machine names their folders.


def _folders(known: Facts) -> Iterator[tuple[str, str]]:
    """The release and the folder of each."""
    for path in known.values(TOOLKIT_ROOT):
        if match := _VERSION.search(path):
            yield match[0], path
    for each in known.profile.toolkits if known.profile else ():
        if each.nvcc and each.version:
            yield versions.minor(each.version), each.root


def _folder(known: Facts, fits: Callable[[str], bool]) -> str | None:
    """The newest that fits."""
    fitting = [(versions.key(release), folder) for release, folder in _folders(known) if fits(release)]
    return max(fitting, default=((), None), key=lambda each: each[0])[1]


def _row(release: str) -> Toolkit | None:
    try:
        return toolkits.find_toolkit(release)
    except UnknownNameError:
        return None


def torch_cuda(known: Facts) -> str | None:
    """The CUDA that torch was built for, by its own word or by its tag, `cu118`."""
    if said := known.version("torch_cuda"):
        return versions.minor(said)
    row = _row(f"cu{tag}") if (tag := known.version("torch_cu")) else None
    return row.version if row else None


def _of_folders(known: Facts) -> Iterator[tuple[str, str]]:
    of_torch, wanted = torch_cuda(known), known.version("wanted") or ""
    meant = _row(wanted if "." in wanted else f"cu{wanted}") if wanted else None
    arch = known_arch(known.version("arch") or "")
    gcc = versions.major(known.version("gcc") or "")
    wishes: dict[str, Callable[[str], bool] | None] = {
        "torch_toolkit": (lambda release: release == of_torch) if of_torch else None,
        "wanted_toolkit": (lambda release: release == meant.version) if meant else None,
        "arch_toolkit": (lambda release: (row := _row(release)) is not None and row.supports(arch)) if arch else None,
        "gcc_toolkit": (lambda release: (row := _row(release)) is not None and (row.host_compilers.gcc_max or 0) >= gcc)
        if gcc
        else None,
    }
    for name, fits in wishes.items():
        if fits and (folder := _folder(known, fits)):
            yield name, folder
        elif fits and name == "torch_toolkit" and versions.minor(known.version("nvcc") or "0") != of_torch:
            yield "absent_toolkit", of_torch or ""


# What the driver takes, and which builds are for it.


def driver_cuda(known: Facts) -> str | None:
    """The newest CUDA that the driver takes: as nvidia-smi says it, or by the driver's own release."""
    if said := known.version("driver_cuda"):
        return versions.minor(said)
    driver = known.version("driver")
    system: OperatingSystem = "windows" if "windows" in known.situations else "linux"
    row = toolkits.driver_cuda(driver, system) if driver else None
    return row.version if row else None


def _compiles_for_gpu(known: Facts, release: str) -> bool:
    row, capability = _row(release), known.capability
    return row is None or capability is None or can_target(row, capability)


def channel(known: Facts) -> str | None:
    """The newest CUDA of PyTorch's index that the driver takes and that compiles for the GPU."""
    newest = driver_cuda(known)
    fitting = [
        each
        for each in torch.channels()
        if newest and versions.at_least(newest, each) and _compiles_for_gpu(known, each)
    ]
    return fitting[-1] if fitting else None


def cuda_major(known: Facts) -> int | None:
    """The CUDA that packages are to be for: torch's, else the newest that driver and GPU take, else the toolkit's."""
    if of_torch := torch_cuda(known):
        return versions.major(of_torch)
    if newest := driver_cuda(known):
        rows = [row for row in toolkits.all_toolkits() if row.major <= versions.major(newest)]
        fitting = [row.major for row in rows if _compiles_for_gpu(known, row.version)]
        return max(fitting, default=None)
    nvcc = known.version("nvcc")
    return versions.major(nvcc) if nvcc else None


def _of_driver(known: Facts) -> Iterator[tuple[str, str]]:
    if newest := driver_cuda(known):
        yield "driver_cuda", newest
    if found := channel(known):
        yield "torch_index", torch.address_of_channel(found)
        yield "cuda_major_driver", str(versions.major(found))
    of_torch = torch_cuda(known)
    if of_torch in torch.channels():
        yield "same_torch_index", torch.address_of_channel(of_torch)
    if major := cuda_major(known):
        yield "cuda_major_here", str(major)


def index_is_older(known: Facts) -> bool:
    """The driver takes a torch, and not the one that is there."""
    found, of_torch = channel(known), torch_cuda(known)
    return found is not None and (of_torch is None or versions.key(found) < versions.key(of_torch))


def driver_takes_torch(known: Facts) -> bool:
    """The torch that is there, by its CUDA's major; where nobody tells the driver, it does."""
    newest, of_torch = driver_cuda(known), torch_cuda(known)
    return of_torch is not None and (newest is None or versions.major(newest) >= versions.major(of_torch))


# Architectures: of the GPU, in the spellings of build systems, and whether torch and nvcc know them.


def _takes_gpu(known: Facts) -> bool | None:
    """Whether this torch accepts the GPU's architecture in TORCH_CUDA_ARCH_LIST; None where one is not known."""
    release, capability = known.version("torch"), known.capability
    return str(capability) in torch.architectures(release) if release and capability else None


def torch_takes_gpu(known: Facts) -> bool:
    return _takes_gpu(known) is True


def gpu_is_newer_than_torch_takes(known: Facts) -> bool:
    return _takes_gpu(known) is False and all(
        Arch.parse(each.replace(".", "")).capability < known.capability
        for each in torch.architectures(known.version("torch"))
        if known.capability
    )


def nvcc_compiles_for_gpu(known: Facts) -> bool:
    row, capability = known.toolkit, known.capability
    return row is not None and capability is not None and can_target(row, capability)


def nvcc_is_not_the_newest(known: Facts) -> bool:
    return known.toolkit is not None and known.toolkit.version != toolkits.newest_toolkit().version


def newest_toolkit_takes_glibc(known: Facts) -> bool:
    glibc = known.version("glibc")
    return glibc is not None and toolkits.glibc_clash(toolkits.newest_toolkit(), glibc) is None


def _of_archs(known: Facts) -> Iterator[tuple[str, str]]:
    if known.capability:
        yield "capability_digits", str(known.capability.number)
    if release := known.version("torch"):
        plain = [each for each in torch.architectures(release) if each[-1].isdigit()]
        yield "torch_last_arch", max(plain, key=versions.key)
    if known.toolkit:
        yield "nvcc_dashed", known.toolkit.version.replace(".", "-")  # as the names of NVIDIA's packages have it


# Libraries.


def library_is_of_cuda(known: Facts) -> bool:
    return cuda_libraries.is_cuda_library(known.version("library") or "")


def _of_repair(known: Facts) -> Iterator[tuple[str, str]]:
    named = known.version("repaired") or "WHEEL"
    yield "wheel", named if named.endswith(".whl") or named == "WHEEL" else f"{named}.whl"


def _of_cudnn(known: Facts) -> Iterator[tuple[str, str]]:
    needed = known.version("cudnn_needed") or ""
    if "." in needed:
        yield "cudnn_next", str(versions.major(needed) + 1)


# The package that was being built.

_TOOLS = {"pip", "setuptools", "wheel", "ninja", "packaging", "cmake", "build", "uv", "git"}  # that come before it


def _of_package(known: Facts) -> Iterator[tuple[str, str]]:
    for each in known.values("building"):
        name = re.split(r"[=<>~!\[]", each)[0].lower()
        if re.match(r"[a-z]\w", name) and not (
            name in _TOOLS or packages.is_framework(name) or name.endswith((".whl", ".txt", ".toml", ".git"))
        ):
            yield "package", each
            yield "package_name", name
            return
    for module in known.values(INSTALLED):  # whose library it is that failed
        distribution = packages.distribution_of_module(module)
        if not packages.is_framework(module) and (distribution or (distribution is None and _is_known(module))):
            yield "package", distribution or module
            yield "package_name", distribution or module
            return


def _is_known(module: str) -> bool:
    """Of a name that nobody knows the index may have something else."""
    name = module.lower().replace("_", "-")
    return packages.find_profile(name) is not None or name in packages.packages_with_needs()


# Libraries of CUDA: of which major the one is that is missing, and of which those that are there.


def _majors_there(known: Facts) -> set[str]:
    """The majors of files that the log lists, of the very library that was not found."""
    missing = re.fullmatch(r"lib(\w+)\.so\.(\d{1,2})(?:\.\d+)*", (known.version("library") or "").lower())
    if not missing:
        return set()
    listed = (each.rpartition(".") for each in known.values(LISTED))
    return {major for name, _, major in listed if name == missing[1] and major != missing[2]}


def another_major_is_there(known: Facts) -> bool:
    return bool(_majors_there(known))


def _of_libraries_there(known: Facts) -> Iterator[tuple[str, str]]:
    if majors := _majors_there(known):
        yield "majors_there", " and ".join(sorted(majors, key=int))


def _of_flags(known: Facts) -> Iterator[tuple[str, str]]:
    """The variable that asks nvcc for the architecture which it refuses."""
    arch = known_arch(known.version("arch") or "")
    for variable, number in (each.split(":") for each in known.values(ARCH_FLAGS)):
        if arch and str(arch.number) == number:
            yield "arch_flags_variable", f"NVCC_{variable}_FLAGS"
            return


# bitsandbytes goes by torch's CUDA, unless BNB_CUDA_VERSION says otherwise.


def bitsandbytes_is_overridden(known: Facts) -> bool:
    """The log shows the variable, or the library that was looked for is not for torch's CUDA, or none of its."""
    if known.version("bnb_override"):
        return True
    wanted, of_torch = known.version("bnb_library"), torch_cuda(known)
    released = (of_torch,) if of_torch else torch.channels()
    return wanted is not None and wanted not in {each.replace(".", "") for each in released}


def bitsandbytes_follows_torch(known: Facts) -> bool:
    wanted, of_torch = known.version("bnb_library"), torch_cuda(known)
    return bool(wanted and of_torch and wanted == of_torch.replace(".", "")) and not bitsandbytes_is_overridden(known)


def _of_bitsandbytes(known: Facts) -> Iterator[tuple[str, str]]:
    """The library that is there and nearest to what was looked for: of the same major, not newer if there is one."""
    row = _row(f"cu{known.version('bnb_library')}")
    of_torch = torch_cuda(known) or (row.version if row else None)
    there = [each for each in known.values(SHIPPED) if of_torch and versions.major(each) == versions.major(of_torch)]
    older = [each for each in there if of_torch and versions.at_least(of_torch, each)]
    if there:
        best = max(older, key=versions.key) if older else min(there, key=versions.key)
        yield "bnb_version", best.replace(".", "")


FACTS: dict[str, Callable[[Facts], object]] = {
    "bitsandbytes-is-overridden": bitsandbytes_is_overridden,
    "bitsandbytes-follows-torch": bitsandbytes_follows_torch,
    "library-is-of-cuda": library_is_of_cuda,
    "gpu-is-newer-than-torch-takes": gpu_is_newer_than_torch_takes,
    "newest-toolkit-takes-glibc": newest_toolkit_takes_glibc,
    "nvcc-compiles-for-gpu": nvcc_compiles_for_gpu,
    "nvcc-is-not-the-newest": nvcc_is_not_the_newest,
    "torch-index-is-older": index_is_older,
    "torch-takes-gpu": torch_takes_gpu,
    "driver-takes-torch": driver_takes_torch,
    "another-major-is-there": another_major_is_there,
}


def conclusions(known: Facts) -> Iterator[tuple[str, str]]:
    """What fixes may have in braces."""
    for conclude in (
        _of_folders,
        _of_driver,
        _of_archs,
        _of_cudnn,
        _of_repair,
        _of_package,
        _of_libraries_there,
        _of_flags,
        _of_bitsandbytes,
    ):
        yield from conclude(known)
