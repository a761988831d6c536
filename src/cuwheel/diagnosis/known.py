"""What is known of the case: versions in the log, the machine's profile, and what the tables conclude from them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.diagnosis import remedies, told
from cuwheel.diagnosis.rows import Situation
from cuwheel.diagnosis.text import Hit
from cuwheel.facts import packages, toolchain_parts
from cuwheel.machine.profile import MachineProfile
from cuwheel.verdicts import machine_view as view
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import cuda_libraries, gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability, known_arch
from cuwheel_core.support import bounded
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.choice import (
    INSUFFICIENT_DRIVER,
    NO_KERNEL_IMAGE,
    SYMBOL_NOT_FOUND,
    UNSUPPORTED_PTX,
    releases_for,
)
from cuwheel_core.wheel.tags import processor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cuwheel.diagnosis.rows import Readings
    from cuwheel.diagnosis.text import Log, Search
    from cuwheel_core.facts.gpus import Gpu
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.cuda_libraries import Package
    from cuwheel_core.facts.rows.toolkits import Release, Toolkit


# A path with a letter outside ASCII, or Windows' short name for a folder that has one or is long.
_ODD_PATH = re.compile(r"(?:[a-z]:/|/)[^\s'<>|]{0,200}?(?:[^\x00-\x7f]|[a-z]~\d)[^\s'<>|]{0,200}")  # folded


GPU_NAMED = "gpu_named"  # by a person, who may speak of several
_DRIVE, _TRIES = re.compile(r"[^a-z0-9_]?[a-z]"), 2000  # what stands before `:/`, and how many of those are looked at


class Version(Struct, frozen=True, kw_only=True):
    """`line` is where the log says it; 0 where the machine's profile does. `index`: of that line in the log."""

    name: str
    value: str
    line: int
    index: int | None = None


class Known(Struct, frozen=True, kw_only=True):
    versions: tuple[Version, ...]
    situations: frozenset[Situation]
    profile: MachineProfile | None = None
    findings: tuple[Finding, ...] = ()

    def version(self, name: str) -> str | None:
        return next(iter(self.values(name)), None)

    def values(self, name: str) -> tuple[str, ...]:
        """All that were found, those to be believed first."""
        return tuple(each.value for each in self.versions if each.name == name)

    def told(self, name: str) -> tuple[Hit, ...]:
        """The lines of a log that tell a fact."""
        return tuple(
            Hit(line=each.index, pattern=name, held={})
            for each in self.versions
            if each.name == name and each.index is not None
        )

    def with_versions(self, held: dict[str, str]) -> Known:
        """Adds what the signatures of a cause hold, which goes before everything else."""
        own = tuple(Version(name=name, value=value, line=0) for name, value in held.items())
        return replace(self, versions=(*own, *self.versions))

    @property
    def toolkit(self) -> Toolkit | None:
        """The row of the nvcc that was used."""
        nvcc = self.version("nvcc")
        return view.row(nvcc) if nvcc else None

    @property
    def gpu(self) -> Gpu | None:
        """The one that is named, if the tables know it; of those that somebody speaks of, the newest."""
        try:
            if name := self.version("gpu"):
                return gpus.find_gpu(name)
        except UnknownNameError:
            return None
        named = [gpus.find_gpu(name) for name in self.values(GPU_NAMED)]
        return max(named, key=lambda gpu: gpu.capability, default=None)

    @property
    def is_jetson(self) -> bool | None:
        """Whether it is a Jetson, by the GPU's name or capability; None where that is not known, or could be both."""
        if self.gpu:
            return self.gpu.tegra is not None
        capability = self.capability
        boards = {gpu.tegra is not None for gpu in gpus.all_gpus() if gpu.capability == capability}
        return boards.pop() if len(boards) == 1 else None

    @property
    def capability(self) -> Capability | None:
        """The GPU's capability: as it was said, or as its name tells."""
        try:
            if named := self.version("capability"):
                return Capability.parse(named)
        except UnknownNameError:
            return None
        return self.gpu.capability if self.gpu else None

    def filled(self) -> dict[str, str]:
        """What a fix may have in braces."""
        return {**{each.name: each.value for each in reversed(self.versions)}, **dict(_conclusions(self))}


def gather(
    search: Search,
    readings: Readings,
    profile: MachineProfile | None,
    facts: Mapping[str, str] | None = None,
    *,
    building: bool = False,
) -> Known:
    """The facts given, then the log, then the profile: the log tells what was so when it failed."""
    found = {(name, value): Version(name=name, value=value, line=0) for name, value in (facts or {}).items()}
    situations: set[Situation] = {"build"} if building else set()
    if facts and remedies.RECORD in facts:
        situations.add("recorded")
    for reading in readings.reading:
        for hit in (hit for text in reading.any for hit in search.hits(text)):
            if reading.means:
                situations.add(reading.means)
            if value := hit.held.get("value", "").strip(" .,"):
                name = "driver_cuda" if reading.name == "driver" and _is_cuda(value) else reading.name
                found.setdefault((name, value), _read(name, value, search.log, hit.line))
    for name, release, place in told.releases_named(search.log.folded):
        found.setdefault((name, release), _read(name, release, search.log, search.log.index_at(place)))
    for name, value, index in remedies.read(search.log):
        found.setdefault((name, value), _read(name, value, search.log, index))
    for gpu, index in told.gpus_named(search.log.lines):
        found.setdefault((GPU_NAMED, gpu.name), _read(GPU_NAMED, gpu.name, search.log, index))
    folded = search.log.folded
    if _has_drive(folded):
        situations.add("windows")
    if (not folded.isascii() or "~" in folded) and (odd := _ODD_PATH.search(folded)):
        found["odd_path", odd[0]] = Version(name="odd_path", value=odd[0], line=0)
    if not any(name == "gpu" for name, _ in found):
        found |= {("gpu", each.value): each for each in _named_gpu(search)}
    findings: tuple[Finding, ...] = ()
    if profile:
        from cuwheel.verdicts import machine_rules  # noqa: PLC0415 - most logs come without a machine

        for name, value in _of_profile(profile):
            found.setdefault((name, value), Version(name=name, value=value, line=0))
        situations.update(_situations_of(profile))
        findings = machine_rules.examine(profile)
    known = Known(
        versions=tuple(found.values()),
        situations=frozenset(situations),
        profile=profile,
        findings=findings,
    )
    return replace(known, situations=_settled(known))


def _is_cuda(driver: str) -> bool:
    """People tell the CUDA that nvidia-smi shows as the driver's version, which has three digits before its dot."""
    try:
        return bool(toolkits.find_release(driver))
    except UnknownNameError:
        return False


def _has_drive(folded: str) -> bool:
    """A path of Windows, `c:/`, and no URL: one letter before the colon."""
    place = folded.find(":/")
    for _ in range(_TRIES):
        if place < 0:
            return False
        if _DRIVE.fullmatch(folded, max(0, place - 2), place):
            return True
        place = folded.find(":/", place + 2)
    return False


def _read(name: str, value: str, log: Log, index: int) -> Version:
    return Version(name=name, value=value, line=log.numbers[index], index=index)


def _settled(known: Known) -> frozenset[Situation]:
    """A GPU that is known says whether it is a Jetson; Windows' own folders are seen from within WSL too."""
    situations = set(known.situations)
    if known.is_jetson is not None:
        situations.discard("jetson")
        situations.update(("jetson",) if known.is_jetson else ())
    if "wsl" in situations:
        situations.discard("windows")
    if "cargo" in situations and "torch" not in situations:
        situations.add("cargo-alone")
    return frozenset(situations)


def _named_gpu(search: Search) -> Iterator[Version]:
    """The one GPU that the log names as programs do, with its maker or its brand."""
    named = {}
    for gpu in gpus.all_gpus():
        texts = (f"NVIDIA {gpu.name}{{b}}", *((f"{{b}}{gpu.name}{{b}}",) if " " in gpu.name else ()))
        for hit in (hit for text in texts for hit in search.hits(text)):
            named[gpu.name] = _read("gpu", gpu.name, search.log, hit.line)
    whole = [each for name, each in named.items() if not any(name in other for other in named if other != name)]
    if len(whole) == 1:
        yield whole[0]


def _of_profile(profile: MachineProfile) -> Iterator[tuple[str, str]]:
    toolkit, torch = view.toolkit_in_use(profile), profile.framework("torch")
    cuda = toolkit.version if toolkit and toolkit.version else toolkits.newest_toolkit().version
    compiler = view.host_compiler(profile, cuda)
    place = profile.system.distribution or profile.system.os
    facts = {
        "system": f"{place.value} {profile.system.cpu.value}",
        "nvcc": toolkit.version if toolkit else None,
        compiler[0].kind if compiler else "gcc": compiler[0].version if compiler else None,
        "torch": torch.version if torch else None,
        "torch_cuda": torch.cuda if torch else None,
        "python": profile.python.version if profile.python else None,
        "driver": profile.driver.version,
        "driver_cuda": profile.driver.cuda,
        "gpu": profile.gpus[0].name if profile.gpus else None,
        "capability": profile.gpus[0].capability if profile.gpus else None,
        "glibc": profile.system.glibc.value if profile.system.glibc else None,
        "l4t": profile.system.l4t.value if profile.system.l4t else None,
    }
    yield from ((name, value) for name, value in facts.items() if value)
    yield from ((tool.name, tool.version) for tool in profile.tools if tool.name in ("cmake", "ninja"))


def _situations_of(profile: MachineProfile) -> Iterator[Situation]:
    system = profile.system
    if system.os.value == "Windows":
        yield "windows"
    elif system.os.value == "Darwin":
        yield "macos"
    else:
        yield "linux"
        if view.prefers_apt(profile):
            yield "apt"
    if system.wsl:
        yield "wsl"
    if system.l4t:
        yield "jetson"
    if system.container:
        yield "container"
    if processor_name(system.cpu.value) == "aarch64":
        yield "arm64"


def _conclusions(known: Known) -> Iterator[tuple[str, str]]:
    for conclude in _CONCLUSIONS:
        yield from conclude(known)


def _of_toolkit(known: Known) -> Iterator[tuple[str, str]]:
    row = known.toolkit
    if row is None:
        return
    yield "nvcc", row.version
    limits = row.host_compilers
    if limits.gcc_max:
        yield "gcc_max", str(limits.gcc_max)
    if limits.clang_max:
        yield "clang_max", str(limits.clang_max)
    if limits.msc_ver_max:
        yield "msc_ver_max", str(limits.msc_ver_max)
    yield "newest_arch", f"sm_{row.architectures[-1]}"
    if before := [each.version for each in toolkits.all_toolkits() if each.major < row.major]:
        yield "toolkit_before", max(before, key=versions.key)  # the last of the major version before


def _of_compiler(known: Known) -> Iterator[tuple[str, str]]:
    """The first toolkit that takes the compiler: the other way out."""
    gcc = known.version("gcc")
    rows = [row for row in toolkits.all_toolkits() if gcc and (row.host_compilers.gcc_max or 0) >= versions.major(gcc)]
    there = {versions.minor(each) for each in known.values("nvcc")}
    if rows and not gcc_fits_nvcc(known) and rows[0].version not in there:
        yield "cuda_for_gcc", rows[0].version


def _of_arch(known: Known) -> Iterator[tuple[str, str]]:
    text = known.version("arch")
    arch = known_arch(text) if text else None
    if arch is None:
        return
    yield "arch", f"sm_{arch.number}"
    if rows := _releases_for(arch):
        yield "cuda_first", rows[0].version
        yield "cuda_last", rows[-1].version


def _of_gpu(known: Known) -> Iterator[tuple[str, str]]:
    capability = known.capability
    if capability is None:
        return
    if known.gpu and known.gpu.capability == capability and not known.version("gpu"):
        yield "gpu", known.gpu.name
    yield "capability", str(capability)
    yield "gpu_arch", f"sm_{capability.number}"
    if rows := releases_for(capability):
        yield "cuda_for_gpu", _compiling(rows)


def _compiling(rows: Sequence[Release]) -> str:
    """`12.8 or later`: the toolkits of `rows`, in words."""
    first, last = rows[0].version, rows[-1].version
    return f"{first} or later" if last == toolkits.newest_toolkit().version else f"{first} to {last}"


def _of_library(known: Known) -> Iterator[tuple[str, str]]:
    """The package of the index that brings a library that was not found."""
    name = known.version("library") or ""
    row = cuda_libraries.known_library(name) if name else None
    if name and row is None and (number := re.search(r"cudnn.*(?:\.so\.|64_)(\d{1,3})(?:\.|$)", name)):
        yield "library_major", number[1]
    if row is None or row.from_driver:
        return
    bringing = [each for each in row.packages if name in (*each.sonames, *each.dlls)]
    release = re.fullmatch(r".*\.so\.(\d+\.\d+)", name)
    if not bringing and release and any(each.version == release[1] for each in toolkits.all_releases()):
        yield "library_release", release[1]  # to CUDA 10.0 a library was named after its toolkit
    majors = sorted({each.cuda for each in bringing if each.cuda is not None})
    if bringing:
        chosen = _package_for(known, bringing)
        yield "library_package", chosen.name
        several = sum(each.name == chosen.name for each in cuda_libraries.library_rows()) > 1
        major = versions.major(chosen.measured_release) if chosen.measured_release else 0
        here = remedies.cuda_major(known)
        if not here or (chosen.cuda or 0) <= here:  # of a later CUDA than the driver takes it would not load
            yield "library_requirement", f"{chosen.name}=={major}.*" if several and major else chosen.name
    if majors:
        yield "library_cuda", " or ".join(map(str, majors))


def _package_for(known: Known, bringing: Sequence[Package]) -> Package:
    """Of the packages that bring a library, for several CUDAs: of the one that is here, else of that most have."""
    likely = (remedies.cuda_major(known), toolkits.newest_toolkit().major - 1)
    by_cuda = {each.cuda: each for each in reversed(bringing)}
    found = next((by_cuda[each] for each in likely if each in by_cuda), None)
    return found or min(bringing, key=lambda each: each.cuda or 0)


def _of_torch(known: Known) -> Iterator[tuple[str, str]]:
    cuda, tag = known.version("torch_cuda"), known.version("torch_cu")
    row = view.row(cuda or f"cu{tag}") if cuda or tag else None
    if row:
        yield "torch_cuda", row.version
        yield "torch_cu", "cu" + row.version.replace(".", "")


def _of_driver(known: Known) -> Iterator[tuple[str, str]]:
    cuda, floor = _runtime_and_floor(known)
    if floor:
        yield "runtime_cuda", versions.minor(cuda)
        yield "driver_floor", floor


def _runtime_and_floor(known: Known) -> tuple[str, str | None]:
    """The CUDA whose runtime is used, torch's before a toolkit's, and from which driver on that works."""
    cuda = known.version("torch_cuda") or known.version("nvcc") or ""
    system: OperatingSystem = "windows" if "windows" in known.situations else "linux"
    return cuda, toolkits.runtime_floor(cuda, system) if cuda else None


def _of_wanted(known: Known) -> Iterator[tuple[str, str]]:
    """The toolkit that was meant, and the one that was found instead."""
    for name, value in (("cuda_wanted", known.version("wanted")), ("cuda_found", known.version("found"))):
        row = view.row(value if "." in value else f"cu{value}") if value else None
        if row:
            yield name, row.version


def _of_missing(known: Known) -> Iterator[tuple[str, str]]:
    """The part of the toolkit that a header or a library which was not found belongs to."""
    wanted = (known.version("missing_part") or "").lower()
    names = [each.name for each in toolchain_parts.all_components() if wanted.startswith(each.name.lower())]
    if wanted and names:
        component = max(names, key=len)
        yield "component", component
        if component in (known.version("toolkit_parts") or "").split():
            yield "component_there", component  # what was not found is looked for elsewhere


def _of_module(known: Known) -> Iterator[tuple[str, str]]:
    """The distribution that brings a module which was not found; not one for a module of the project itself."""
    module = (known.version("missing_module") or "").partition(".")[0]
    if not module:
        return
    yield "missing_module", module
    distribution = packages.distribution_of_module(module)
    if module in (known.version("own_modules") or "").split():
        yield "own_module", module
    elif distribution:
        yield "module_distribution", distribution
    elif distribution is None:
        yield "same_named_distribution", module


def _of_python(known: Known) -> Iterator[tuple[str, str]]:
    if python := known.version("python"):
        yield "python_minor", versions.minor(python) if "." in python else f"{python[0]}.{python[1:]}"


def _of_standard(known: Known) -> Iterator[tuple[str, str]]:
    row = toolchain_parts.cxx_standard(known.version("standard") or "")
    if row:
        yield "gcc_for_standard", str(row.gcc)


def _of_libstdcxx(known: Known) -> Iterator[tuple[str, str]]:
    """The GCC that brought a version of libstdc++'s symbols."""
    if gcc := packages.gcc_of_glibcxx(known.version("glibcxx_needed") or ""):
        yield "glibcxx_gcc", gcc


def _of_tables(_known: Known) -> Iterator[tuple[str, str]]:
    """What holds of every log."""
    newest = toolkits.newest_toolkit()
    majors = (newest.major - 1, newest.major)
    floors = ((each, toolkits.minor_compat_floor(each)) for each in majors)
    yield "newest_cuda", newest.version
    yield "cuda_major", str(newest.major)
    yield "cuda_major_before", str(newest.major - 1)
    yield "driver_floors", ", ".join(f"{floor} or later for CUDA {major}" for major, floor in floors if floor)


_CONCLUSIONS: tuple[Callable[[Known], Iterator[tuple[str, str]]], ...] = (
    _of_toolkit,
    _of_compiler,
    _of_arch,
    _of_gpu,
    _of_library,
    _of_torch,
    _of_driver,
    _of_wanted,
    _of_missing,
    _of_module,
    _of_python,
    _of_standard,
    _of_libstdcxx,
    told.conclusions,
    remedies.conclusions,
    _of_tables,
)
# Under these names, whatever the log says; a test sees that no other is concluded.
CONCLUDED = frozenset(
    {
        "absent_toolkit", "arch", "arch_flags_variable", "arch_toolkit", "bnb_version", "capability",
        "capability_digits", "clang_max", "component", "component_there", "cuda_first", "cuda_for_gcc",
        "cuda_for_gpu", "cuda_found", "cuda_last", "cuda_major", "cuda_major_before", "cuda_major_driver",
        "cuda_major_here", "cuda_wanted", "cudnn_next", "driver_cuda", "driver_floor", "driver_floors",
        "driver_for_gpu", "gcc_for_standard", "gcc_max", "gcc_toolkit", "glibcxx_gcc", "gpu", "gpu_arch",
        "held_dll", "library_cuda", "library_major", "library_package", "library_release", "library_requirement",
        "majors_there", "missing_module", "module_distribution", "msc_ver_max", "needing_package", "newest_arch",
        "newest_cuda", "nvcc", "nvcc_dashed", "own_module", "package", "package_capability", "package_name",
        "python_minor", "record", "runtime_cuda", "same_named_distribution", "same_torch_index", "toolkit_before",
        "torch_cu", "torch_cuda", "torch_index", "torch_last_arch", "torch_toolkit", "wanted_cuda", "wanted_cudnn",
        "wanted_toolkit", "wanting_package", "wheel", "wheel_at_hand",
    }
)  # fmt: skip


ALWAYS = frozenset({"newest_cuda", "cuda_major", "cuda_major_before", "driver_floors"})  # known without any log


# The facts that a cause's file may name under `[[fact]] when`: each a small question to what is known.


def gcc_newer_than_nvcc_takes(known: Known) -> bool:
    return _nvcc_takes_gcc(known) is False


def gcc_fits_nvcc(known: Known) -> bool:
    return _nvcc_takes_gcc(known) is True


def _nvcc_takes_gcc(known: Known) -> bool | None:
    """Whether this nvcc takes this GCC; None where that is not known."""
    gcc, row = known.version("gcc"), known.toolkit
    limit = row.host_compilers.gcc_max if row else None
    return versions.major(gcc) <= limit if gcc and limit else None


def _release_in_use(known: Known, serving: Sequence[Release]) -> Release | None:
    """Of the nvcc that was used; where nobody says that, of the one CUDA that is named and not the driver's.

    `serving`: those that compile for an architecture. If one that is merely named does, it was another that refused.
    """
    nvcc = known.version("nvcc")
    named = {each for each in known.values("cuda_told") if "." in each}.difference(known.values("driver_cuda"))
    if nvcc is None and len(named) != 1:
        return None
    try:
        row = toolkits.find_release(nvcc or named.pop())
    except UnknownNameError:
        return None
    return row if nvcc or row not in serving else None


def _releases_for(arch: Arch) -> list[Release]:
    return [row for row in toolkits.all_releases() if f"{arch.number}{arch.suffix}" in row.architectures]


def _refused(known: Known) -> tuple[Arch | None, Release | None, list[Release]]:
    """The architecture that nvcc refuses, the release of that nvcc, and those that take it."""
    text = known.version("arch")
    arch = known_arch(text) if text else None
    serving = _releases_for(arch) if arch else []
    return arch, _release_in_use(known, serving), serving


def arch_was_dropped(known: Known) -> bool:
    """No toolkit of today compiles for it any more, and this nvcc is not one of those that still did."""
    arch, row, serving = _refused(known)
    if arch is None or row in serving:
        return False
    if row and serving:
        return versions.key(row.version) > versions.key(serving[-1].version)
    newest = toolkits.newest_toolkit()
    older = [each for each in newest.architectures if each.isdigit() and bounded.digits(each) > arch.capability.number]
    return not newest.supports(arch) and len(older) == len([each for each in newest.architectures if each.isdigit()])


def arch_is_newer_than_nvcc(known: Known) -> bool:
    arch, row, serving = _refused(known)
    if row and serving:
        return versions.key(row.version) < versions.key(serving[0].version)
    return arch is not None and toolkits.newest_toolkit().supports(arch)


def toolkit_dropped_arch(known: Known) -> bool:
    """Whether this very nvcc no longer has the architecture, as far as the tables know it."""
    return _refused(known)[1] is not None and arch_was_dropped(known)


def toolkit_precedes_arch(known: Known) -> bool:
    return _refused(known)[1] is not None and arch_is_newer_than_nvcc(known)


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


def torch_has_cuda(known: Known) -> bool:
    """The one that is installed on the machine."""
    torch = known.profile.framework("torch") if known.profile else None
    return torch is not None and bool(torch.cuda)


def no_gpu_there(known: Known) -> bool:
    return known.profile is not None and not known.profile.gpus


def on_macos(known: Known) -> bool:
    return "macos" in known.situations


def in_a_container(known: Known) -> bool:
    return "container" in known.situations


def toolkit_differs_from_torch(known: Known) -> bool:
    nvcc, cuda = known.version("nvcc"), known.version("torch_cuda")
    return bool(nvcc and cuda and versions.major(nvcc) != versions.major(cuda))


def toolkit_has_torchs_major(known: Known) -> bool:
    nvcc, cuda = known.version("nvcc"), remedies.torch_cuda(known)
    return bool(nvcc and cuda and versions.major(nvcc) == versions.major(cuda))


def toolkit_precedes_torch(known: Known) -> bool:
    nvcc, cuda = known.version("nvcc"), remedies.torch_cuda(known)
    return bool(nvcc and cuda and versions.key(versions.minor(nvcc)) < versions.key(cuda))


def several_toolkits(known: Known) -> bool:
    return known.profile is not None and len({each.root for each in known.profile.toolkits if each.nvcc}) > 1


def no_nvcc(known: Known) -> bool:
    return known.profile is not None and not any(each.nvcc for each in known.profile.toolkits)


def gpu_present(known: Known) -> bool:
    return known.profile is not None and bool(known.profile.gpus)


def driver_below_floor(known: Known) -> bool:
    driver, (_, floor) = known.version("driver"), _runtime_and_floor(known)
    return bool(driver and floor and not versions.at_least(driver, floor))


def glibc_clashes(known: Known) -> bool:
    row, glibc = known.toolkit, known.version("glibc")
    return bool(row and glibc and toolkits.glibc_clash(row, glibc))


def two_toolkits_in_log(known: Known) -> bool:
    """Paths, or tools, of two releases: which one compiled is then the question."""
    seen = {versions.minor(each) for name in ("nvcc", "toolkit_path") for each in known.values(name)}
    return len(seen) > 1


def two_nvcc_told(known: Known) -> bool:
    return len({versions.minor(each) for each in known.values("nvcc_says")}) > 1


def cmake_mixes_toolkits(known: Known) -> bool:
    """Its compiler is of one release, the libraries that it found of another."""
    compiler, libraries = known.version("cmake_nvcc"), known.version("cmake_toolkit")
    return bool(compiler and libraries and versions.minor(compiler) != versions.minor(libraries))


def cmake_has_no_cuda_targets(known: Known) -> bool:
    """The module that makes CUDA::cudart and its like came with CMake 3.17."""
    cmake = known.version("cmake")
    return bool(cmake and not versions.at_least(cmake, "3.17"))


def library_of_another_cuda(known: Known) -> bool:
    """The library that is missing belongs to another major than everything that is here."""
    majors = {bounded.digits(each) for each in known.filled().get("library_cuda", "").split(" or ") if each}
    here = {versions.major(each) for name in ("torch_cuda", "nvcc", "driver_cuda") for each in known.values(name)}
    here |= {bounded.digits(tag[:2]) for tag in known.values("torch_cu") if len(tag) > 2}  # noqa: PLR2004 - 118, not a letter
    return bool(majors and here) and not majors & here


def nvcc_older_than_wanted_arch(known: Known) -> bool:
    """The build is for an architecture that this nvcc, whoever chose it, does not know yet."""
    nvcc, wanted = known.version("nvcc"), known.version("wanted_arch")
    arch = known_arch(wanted) if wanted else None
    supporting = toolkits.toolkits_supporting(arch) if arch else ()
    return bool(nvcc and supporting and versions.key(nvcc) < versions.key(supporting[0].version))


def toolkit_is_recent(known: Known) -> bool:
    """Whether nvcc is of the last two majors: what it does not have was removed, most likely."""
    nvcc = known.version("nvcc")
    return bool(nvcc and versions.major(nvcc) >= toolkits.newest_toolkit().major - 1)


def toolkit_is_old(known: Known) -> bool:
    nvcc = known.version("nvcc")
    return bool(nvcc and versions.major(nvcc) < toolkits.newest_toolkit().major - 1)


def path_outside_ascii(known: Known) -> bool:
    return known.version("odd_path") is not None


def toolkit_is_new_enough(known: Known) -> bool:
    """For what a message asks for, as far as it names a version: "requires CUDA 11.4 or later", and 11.7 is there."""
    return _reaches_what_is_needed(known) is True


def toolkit_is_not_new_enough(known: Known) -> bool:
    return _reaches_what_is_needed(known) is False


def _reaches_what_is_needed(known: Known) -> bool | None:
    nvcc, needed = known.version("nvcc"), known.version("cuda_needed") or known.version("cuda_least")
    return versions.at_least(nvcc, needed) if nvcc and needed else None


def in_a_cuwheel_build(known: Known) -> bool:
    return "build" in known.situations


def _follows(fact: Callable[[remedies.Facts], object], known: Known) -> bool:
    return bool(fact(known))


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
    "torch-has-cuda": torch_has_cuda,
    "no-gpu-there": no_gpu_there,
    "on-macos": on_macos,
    "in-a-container": in_a_container,
    "toolkit-differs-from-torch": toolkit_differs_from_torch,
    "several-toolkits": several_toolkits,
    "toolkit-has-torchs-major": toolkit_has_torchs_major,
    "toolkit-precedes-torch": toolkit_precedes_torch,
    "no-nvcc": no_nvcc,
    "gpu-present": gpu_present,
    "driver-below-floor": driver_below_floor,
    "glibc-clashes": glibc_clashes,
    "two-toolkits-in-log": two_toolkits_in_log,
    "two-nvcc-told": two_nvcc_told,
    "cmake-mixes-toolkits": cmake_mixes_toolkits,
    "cmake-has-no-cuda-targets": cmake_has_no_cuda_targets,
    "library-of-another-cuda": library_of_another_cuda,
    "nvcc-older-than-wanted-arch": nvcc_older_than_wanted_arch,
    "toolkit-is-recent": toolkit_is_recent,
    "toolkit-is-old": toolkit_is_old,
    "in-a-cuwheel-build": in_a_cuwheel_build,
    "path-outside-ascii": path_outside_ascii,
    "toolkit-is-new-enough": toolkit_is_new_enough,
    "toolkit-is-not-new-enough": toolkit_is_not_new_enough,
    **{name: partial(_follows, fact) for name, fact in {**told.FACTS, **remedies.FACTS}.items()},
    "check-predicts-no-kernel-image": _predicted(NO_KERNEL_IMAGE.code),
    "check-predicts-symbol-not-found": _predicted(SYMBOL_NOT_FOUND.code),
    "check-predicts-unsupported-ptx": _predicted(UNSUPPORTED_PTX.code),
    "check-predicts-insufficient-driver": _predicted(INSUFFICIENT_DRIVER.code),
}
