"""What people tell: the GPUs and releases that they name, and what the tables conclude where no program said anything.

"Works on my 3090 and not on the 5090, torch 2.5" has no message in it, and yet a cause: no torch before 2.7 has code
for that GPU. Names and numbers are facts whoever states them; which of them do not go together is a matter of tables.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from cuwheel.facts import packages, torch
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cuwheel.facts.rows.packages import PackageNeeds
    from cuwheel_core.facts.gpus import Gpu
    from cuwheel_core.facts.rows.toolkits import Release, Toolkit


class Facts(Protocol):
    """What is known of a case, as far as it is asked for here."""

    @property
    def situations(self) -> frozenset[str]: ...
    @property
    def capability(self) -> Capability | None: ...
    @property
    def toolkit(self) -> Toolkit | None: ...
    def version(self, name: str) -> str | None: ...
    def values(self, name: str) -> tuple[str, ...]: ...


_SHORT = 120  # lines: of longer logs only what programs say in forms of their own names a GPU
_LINE = 400  # letters of a line
_READ, _MOST = 1 << 17, 20  # letters in which releases are looked for, and how many of them are kept
_SPEAKS_OF_GPUS = re.compile(r"gpu|cuda|nvidia|torch|tensorflow|driver|graphics card|显卡")
# `RTX 5070Ti`, `4080`, `V100`, `Tesla P40`, `Orin NX`: what may be a GPU's name. The table says whether it is one.
_MAKER = r"(?:(?:nvidia|geforce|quadro|tesla|titan|rtx|gtx|gt)[ -]{0,2}){0,4}"
_SERIES = r"(?:rtx|gtx|gt|mx)?(?:9[5-8]|10[1-8]|16[3-6]|20[5-8]|30[5-9]|40[5-9]|50[5-9])0(?:mx?)?"
_LETTERED = r"[vahbpkm]\d{2,4}x?s?|[tlp]4|l40s?|gb[123]00?|titan (?:v|x|xp|rtx)"
_BOARD = r"jetson (?:nano|tx[12]|thor|(?:agx )?(?:orin|xavier)(?: nano| nx)?)|(?:agx )?orin(?: nano| nx)?|xavier nx"
_AFTER = r"(?:[ -]?(?:ti|super|laptop|mobile|max-q|ada(?: generation)?|d(?!\w)))*"
_NAME = re.compile(rf"(?<![\w.+=/-]){_MAKER}(?:{_SERIES}|{_LETTERED}|{_BOARD}){_AFTER}(?![\w%]|\.\d|/\w)")
_BARE = re.compile(r"[tlp]4|\d+")  # too short, or a mere number, to be a name by itself where nobody speaks of GPUs


def gpus_named(lines: Sequence[str]) -> Iterator[tuple[Gpu, int]]:
    """The GPUs that a short text names, each with the index of its first line."""
    if len(lines) > _SHORT:
        return
    folded = [line[:_LINE].lower() for line in lines]
    speaks = any(map(_SPEAKS_OF_GPUS.search, folded))
    seen = set[str]()
    for index, line in enumerate(folded):
        for match in _NAME.finditer(line):
            name = match[0].strip()
            if name in seen or (_BARE.fullmatch(name) and not speaks):
                continue
            seen.add(name)
            if (gpu := _gpu(name)) is not None:
                yield gpu, index


def _gpu(name: str) -> Gpu | None:
    try:
        return gpus.known_gpu(name)
    except UnknownNameError:  # one of several
        return None


@cache
def _released() -> tuple[dict[str, str], re.Pattern[str]]:
    """What people call the packages of which the tables know something, and how they tell a release."""
    named = {called: name for name, all_ in packages.packages_with_needs().items() for called in all_}
    names = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    between = r"(?:==|[-=:(]|,? version(?: is)?:?|:? ver\.?| release)?\s?(?:tf )?\(?'?v?"
    return named, re.compile(rf"(?<![\w./-])({names}){between}(\d{{1,2}}\.\d{{1,3}}(?:\.\d{{1,4}})?)(?![\d.]*[/\w])")


def releases_named(folded: str) -> Iterator[tuple[str, str, int]]:
    """Package, release and where it is told."""
    named, pattern = _released()
    if not any(folded.find(each, 0, _READ) >= 0 for each in named):
        return
    for match in islice(pattern.finditer(folded, 0, _READ), _MOST):
        yield named[match[1]], match[2], match.start()


def releases(known: Facts) -> Iterator[tuple[str, str, PackageNeeds]]:
    """Package, release and what it needs."""
    for name in packages.packages_with_needs():
        for release in known.values(name):
            if (needs := packages.needs_of(name, release)) is not None:
                yield name, release, needs


def capabilities(known: Facts) -> tuple[Capability, ...]:
    """The capabilities of all GPUs that were named, or the one that was said itself."""
    found = [_gpu(name) for name in (*known.values("gpu"), *known.values("gpu_named"))]
    named = [gpu.capability for gpu in found if gpu]
    return tuple(dict.fromkeys(named)) or ((known.capability,) if known.capability else ())


def serves(archs: Iterable[str], capability: Capability) -> bool:
    """Whether machine code for one of these runs on a GPU: of its own major, and not newer."""
    numbers = (Arch.parse(each.replace(".", "")) for each in archs)
    return any(each.capability.major == capability.major and each.capability <= capability for each in numbers)


def gpu_without_code_in_torch(known: Facts) -> Capability | None:
    """A GPU that this release of torch was made before, or this CUDA no longer compiles for."""
    for capability in capabilities(known):
        if gpus.is_tegra(capability):
            continue
        for text in (*known.values("torch_cuda"), *(f"cu{tag}" for tag in known.values("torch_cu"))):
            row = _release(text)
            if row and not serves(row.architectures, capability):
                return capability
        release = known.version("torch")
        if (
            release
            and versions.at_least(release, _FIRST_TORCH)
            and not serves(torch.architectures(release), capability)
        ):
            return capability
    return None


_FIRST_TORCH = "1.8"  # the table begins with 2.0, whose list was that of those before


@cache
def _release(text: str) -> Release | None:
    try:
        return toolkits.find_release(text)
    except UnknownNameError:
        return None


def gpu_of_newest_generation(known: Facts) -> Capability | None:
    """A GPU that the first release of the major before the newest does not know."""
    before = next(row for row in toolkits.all_toolkits() if row.major == toolkits.newest_toolkit().major - 1)
    return next((each for each in capabilities(known) if _is_newer(before.architectures, each)), None)


def gpu_before_ampere(known: Facts) -> Capability | None:
    """What the second FlashAttention does without."""
    return next((each for each in capabilities(known) if each < Capability.parse(_AMPERE)), None)


_AMPERE = "8.0"


def gpu_unknown_to_nvcc(known: Facts) -> Capability | None:
    """A GPU that this nvcc does not compile for yet."""
    row = known.toolkit
    return next(
        (
            each
            for each in capabilities(known)
            if row and not serves(row.architectures, each) and _is_newer(row.architectures, each)
        ),
        None,
    )


def _is_newer(archs: Sequence[str], capability: Capability) -> bool:
    return all(Arch.parse(each).capability < capability for each in archs)


def gpu_unknown_to_driver(known: Facts) -> Capability | None:
    """A GPU that no driver of this branch knows yet."""
    driver = known.version("driver")
    for capability in capabilities(known):
        row = gpus.driver_support(capability)
        if driver and row and versions.major(driver) < versions.major(row.first):
            return capability
    return None


def package_needs_newer_gpu(known: Facts) -> tuple[str, Capability] | None:
    """The package, and the least that it asks for."""
    for name, _, needs in releases(known):
        if needs.capability and any(each < needs.capability for each in capabilities(known)):
            return name, needs.capability
    return None


def package_wants_other_cuda(known: Facts) -> tuple[str, str] | None:
    """The package, and the CUDA that its wheels look for, which is another than all that were named."""
    here = {each for name in ("nvcc", "cuda_told") for each in known.values(name) if _release(each) or "." not in each}
    for name, _, needs in releases(known):
        wanted = needs.cuda
        if wanted and here and not any(_is_same(wanted, each) for each in here):
            return name, wanted
    return None


def _is_same(wanted: str, here: str) -> bool:
    """Libraries are named after the major, up to 10 after the release."""
    if versions.major(wanted) > _BY_RELEASE:
        return versions.major(wanted) == versions.major(here)
    return (
        versions.minor(wanted) == versions.minor(here)
        if "." in here
        else versions.major(wanted) == bounded.digits(here)
    )


_BY_RELEASE = 10


def package_wants_other_cudnn(known: Facts) -> tuple[str, str] | None:
    cuda = known.values("cuda_told")  # a form may ask for both in one
    here = {_cudnn(each) for each in known.values("cudnn") if each not in cuda}
    for name, _, needs in releases(known):
        if needs.cudnn and here and versions.major(needs.cudnn) not in here:
            return name, needs.cudnn
    return None


def _cudnn(text: str) -> int:
    """The major: of `9.1.0`, or of the number that the library itself gives, 8907 and 91002."""
    if "." in text:
        return versions.major(text)
    return bounded.digits(text[0]) if len(text) > 1 else bounded.digits(text)


def package_without_cuda_on_windows(known: Facts) -> str | None:
    if "windows" not in known.situations:
        return None
    return next((name for name, _, needs in releases(known) if not needs.windows), None)


def driver_cuda_below_torch(known: Facts) -> bool:
    """The driver's own CUDA is of an older major than torch's, as `nvidia-smi` and the version of torch tell it."""
    cuda = known.version("torch_cuda") or next((f"{tag[:2]}" for tag in known.values("torch_cu") if len(tag) > 2), None)  # noqa: PLR2004
    driver = known.version("driver_cuda")
    return bool(cuda and driver and versions.major(driver) < versions.major(cuda))


FACTS: dict[str, Callable[[Facts], object]] = {
    "gpu-without-code-in-torch": gpu_without_code_in_torch,
    "gpu-of-newest-generation": gpu_of_newest_generation,
    "gpu-before-ampere": gpu_before_ampere,
    "gpu-unknown-to-nvcc": gpu_unknown_to_nvcc,
    "gpu-unknown-to-driver": gpu_unknown_to_driver,
    "package-needs-newer-gpu": package_needs_newer_gpu,
    "package-wants-other-cuda": package_wants_other_cuda,
    "package-wants-other-cudnn": package_wants_other_cudnn,
    "package-without-cuda-on-windows": package_without_cuda_on_windows,
    "driver-cuda-below-torch": driver_cuda_below_torch,
}


def conclusions(known: Facts) -> Iterator[tuple[str, str]]:
    """What fixes say of it."""
    if needs := package_needs_newer_gpu(known):
        yield "needing_package", needs[0]
        yield "package_capability", str(needs[1])
    if wants := package_wants_other_cuda(known):
        yield "wanting_package", wants[0]
        yield "wanted_cuda", wants[1]
    if wants := package_wants_other_cudnn(known):
        yield "wanting_package", wants[0]
        yield "wanted_cudnn", str(versions.major(wants[1]))
    capability = gpu_unknown_to_driver(known)
    row = gpus.driver_support(capability) if capability else None
    if row:
        yield "driver_for_gpu", row.first
