"""From the name of a GPU, as people and drivers write it, to its capability; its drivers, and its processor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from msgspec import Struct

from cuwheel_core.errors import AmbiguousNameError, UnknownNameError
from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Capability, looks_like_arch
from cuwheel_core.facts.rows.gpus import Architecture, DriverSupport, Host, squashed
from cuwheel_core.facts.tables import tables
from cuwheel_core.support import wording
from cuwheel_core.support.patterns import lazy_pattern

_KIND = "GPU"
_PIECE = lazy_pattern(r"[a-z]+|\d+")
_LETTERED = "data centre"  # the product whose boards have letters for their form and memory
_SUGGESTIONS = 5
_TELLING = 3  # letters and digits: fewer tell nothing
_GOES_ON = 0.2
_OTHER_BRAND = 0.25  # of a slip: a brand or line that a name has not


class Gpu(Struct, frozen=True, kw_only=True):
    """`tegra`: the chip that a Jetson's device tree names."""

    name: str
    capability: Capability
    product: str
    source: tuple[str, ...]
    tegra: str | None = None
    note: str = ""


class _Reading(Struct, frozen=True):
    """A name taken apart: what must agree, and the words that may be left out."""

    core: tuple[str, ...]
    brands: frozenset[str]
    lines: frozenset[str]
    generations: frozenset[str]

    @property
    def words(self) -> frozenset[str]:
        return self.brands | self.lines


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the table, by capability."""
    return tuple(
        Gpu(
            name=name,
            capability=group.capability,
            product=group.product,
            source=group.source,
            tegra=group.tegra,
            note=group.note,
        )
        for group in tables().gpus.group
        for name in group.names
    )


@lru_cache(maxsize=1024)
def find_gpu(text: str) -> Gpu:
    """The GPU that `text` names; an error if none does, or several of different capabilities do."""
    if found := _by_full_name().get(squashed(text)) or _of_virtual(text) or _named(text):
        return found
    near = _nearest(text)
    raise UnknownNameError(_KIND, text, near, hint="" if near else "'cuwheel lookup gpu' lists all of them")


def _of_virtual(text: str) -> Gpu | None:
    """The GPU below a virtual one, `A100DX-4-40C`; None where `text` does not name one."""
    rules = tables().gpus.vgpu
    name = text.strip().lower()
    profile = re.search(rules.profile, name, re.ASCII)
    if profile is None:
        return None
    board = re.sub(r"^(?:(?:nvidia|grid)\b[ -]*)+", "", name[: profile.start()])
    if profile[1] and (meant := _boards().get(squashed(board))):
        return meant
    whole = known_gpu(board)
    if whole or not (letters := re.fullmatch(rf"(.*\d)[{rules.letters}]{{1,2}}", board)):
        return whole
    shorter = known_gpu(letters[1])
    return shorter if shorter and shorter.product == _LETTERED else None


def known_gpu(text: str) -> Gpu | None:
    """The GPU of this name; None where nothing is called so; an error if several of different capabilities are."""
    return _by_full_name().get(squashed(text)) or _named(text)


def _named(text: str) -> Gpu | None:
    """The one with the number and the brand that `text` has; an error if several of different capabilities have."""
    wanted = _read(text)
    for row in tables().gpus.ambiguous:
        shared = _read(row.name)
        if squashed(row.name) == squashed(text) or (shared.core == wanted.core and wanted.brands <= shared.brands):
            raise AmbiguousNameError(_KIND, text, row.meanings)
    rivals = [(gpu, reading) for gpu, reading in _readings() if wanted.core and reading.core == wanted.core]
    telling = {brand for _, reading in rivals for brand in reading.brands}
    candidates = [
        gpu
        for gpu, reading in rivals
        if wanted.brands & telling <= reading.brands
        and wanted.lines <= reading.lines
        and wanted.generations <= {_generations()[str(gpu.capability)]}
    ]
    if len({gpu.capability for gpu in candidates}) > 1:
        raise AmbiguousNameError(_KIND, text, [f"{gpu.name} ({gpu.capability})" for gpu in candidates])
    return min(candidates, key=lambda gpu: len(gpu.name), default=None)


def of_generation(name: str) -> tuple[Capability, ...]:
    """`hopper`: the capabilities of its GPUs, without those of Tegras; none where no generation is called so."""
    rows = tables().architectures.architecture
    named = (row for row in rows if row.generation.lower() == name.strip().lower() and not row.tegra)
    return tuple(dict.fromkeys(current_capability(row.capability) for row in named))


def capability_of(text: str) -> Capability:
    """The capability of a GPU by its name, or that which is written in any way: `9.0`, `90`, `sm_90a`."""
    return Capability.parse(text) if looks_like_arch(text) else find_gpu(text).capability


def search_gpus(text: str) -> tuple[Gpu, ...]:
    """The GPUs whose name contains `text`, or that have the capability that it is; all for no text."""
    if looks_like_arch(text):
        capability = Capability.parse(text)
        if rows := tuple(gpu for gpu in all_gpus() if gpu.capability == capability):
            return rows
    if capabilities := of_generation(text):
        return tuple(gpu for gpu in all_gpus() if gpu.capability in capabilities)
    wanted = squashed(text)
    by_alias = {target for alias, target in tables().gpus.aliases.items() if wanted in squashed(alias)}
    return tuple(gpu for gpu in all_gpus() if wanted in squashed(gpu.name) or gpu.name in by_alias)


def look_up(text: str) -> tuple[Gpu, ...]:
    """For people: all GPUs of a capability, the one that a name means, else all that contain it."""
    if looks_like_arch(text) and (rows := search_gpus(text)):
        return rows
    try:
        return (find_gpu(text),)
    except AmbiguousNameError:
        raise
    except UnknownNameError:
        if rows := search_gpus(text):
            return rows
        raise


def gpus_of_tegra(chip: str) -> tuple[Gpu, ...]:
    """The GPUs in a Tegra chip, `tegra234` as a device tree spells it."""
    return tuple(gpu for gpu in all_gpus() if gpu.tegra == chip.strip().lower().removeprefix("nvidia,"))


@cache
def _boards() -> dict[str, Gpu]:
    return {squashed(name): _by_full_name()[squashed(gpu)] for name, gpu in tables().gpus.vgpu.boards.items()}


@cache
def _by_full_name() -> dict[str, Gpu]:
    rows = {gpu.name: gpu for gpu in all_gpus()}
    aliases = tables().gpus.aliases.items()
    return {squashed(name): gpu for name, gpu in rows.items()} | {
        squashed(alias): rows[target] for alias, target in aliases
    }


@cache
def _readings() -> tuple[tuple[Gpu, _Reading], ...]:
    rows = {gpu.name: gpu for gpu in all_gpus()}
    aliases = {alias: rows[target] for alias, target in tables().gpus.aliases.items()}
    return tuple((gpu, _read(name)) for name, gpu in {**rows, **aliases}.items())


@cache
def _generations() -> dict[str, str]:
    return {row.capability: row.generation.lower() for row in tables().architectures.architecture}


def _read(text: str) -> _Reading:
    rest = re.sub(r"[^a-z0-9.\-]+", " ", text.lower())
    rules = tables().gpus.normalisation
    for pattern in rules.ignore:
        rest = re.sub(pattern, " ", rest)
    for pattern in rules.glued:
        rest = re.sub(pattern, r"\1 \2", rest)
    pieces = _PIECE.findall(rest)
    optional = {*rules.brands, *rules.lines, *_generations().values()}
    return _Reading(
        core=tuple(each for each in pieces if each not in optional),
        brands=frozenset(pieces).intersection(rules.brands),
        lines=frozenset(pieces).intersection(rules.lines),
        generations=frozenset(pieces).intersection(_generations().values()),
    )


def _nearest(text: str) -> list[str]:
    """Names that contain it; else those that are the fewest slips away, in the number above all."""
    names = {squashed(gpu.name): gpu.name for gpu in all_gpus()}
    wanted = squashed(text)
    if inside := [names[key] for key in names if len(wanted) > 1 and wanted in key]:
        return sorted(inside, key=len)[:_SUGGESTIONS]
    reading = _read(text)
    core = "".join(reading.core)
    slips: dict[str, float] = {}
    for gpu, other in _readings():
        number = "".join(other.core)
        found = _slips(core, number) + _OTHER_BRAND * len(reading.words - other.words)
        if number and found <= max(min(len(core), len(number)) / 3, 1):
            slips[gpu.name] = min(found, slips.get(gpu.name, found))
    fewest = min(slips.values(), default=0)
    alike = sorted((found, len(name), name) for name, found in slips.items() if found < fewest + _OTHER_BRAND)
    return [name for _, _, name in alike][:_SUGGESTIONS] or _alike(core, wanted, names)


_SWAPPED = 0.5  # two neighbours exchanged: the commonest slip in numbers
_LOOK_ALIKE = 0.25
_ALIKE = tuple(frozenset(pair) for pair in ("0o", "1l", "1i", "5s", "8b", "2z", "-_", "_ ", "- "))
_LONGEST_WORD = 64  # nobody mistypes more, and the work grows with the square


def slips_between(one: str, other: str) -> float:
    """How many slips of the hand lie between two words."""
    one, other = one[:_LONGEST_WORD], other[:_LONGEST_WORD]
    before: list[float] = []
    last: list[float] = [float(column) for column in range(len(other) + 1)]
    for row, left in enumerate(one, 1):
        line = [float(row)]
        for column, right in enumerate(other, 1):
            cost = 0.0 if left == right else _LOOK_ALIKE if frozenset(left + right) in _ALIKE else 1.0
            best = min(last[column] + 1, line[-1] + 1, last[column - 1] + cost)
            if min(row, column) > 1 and left == other[column - 2] and right == one[row - 2] and left != right:
                best = min(best, before[column - 2] + _SWAPPED)
            line.append(best)
        before, last = last, line
    return last[-1]


def _slips(core: str, number: str) -> float:
    """Between two cores; one may go on where the other ends, as `4090 Ti` does."""
    length = min(len(core), len(number))
    whole = slips_between(core, number)
    if length < _TELLING or max(core, number, key=len)[length : length + 1].isdigit():
        return whole
    return min(whole, slips_between(core[:length], number[:length]) + _GOES_ON)


def _alike(core: str, wanted: str, names: Mapping[str, str]) -> list[str]:
    """Where nobody just mistyped a name: those that have most letters in common with it."""
    cores = {"".join(reading.core): squashed(gpu.name) for gpu, reading in reversed(_readings())}
    found = [cores[key] for key in wording.similar_names(core, cores, _SUGGESTIONS)]
    found += wording.similar_names(wanted, names, _SUGGESTIONS)
    return [names[key] for key in dict.fromkeys(found)][:_SUGGESTIONS]


# Which drivers know a GPU, and which processor it comes with.


@lru_cache(maxsize=256)
def driver_support(capability: Capability) -> DriverSupport | None:
    """The branches that know GPUs of a capability; None where the table has no row, as for Tegra."""
    return next((row for row in tables().gpu_drivers.support if capability in row.capabilities), None)


def driver_support_by_pci(device: str) -> DriverSupport | None:
    """The same for `10de:2b85`, where the id alone tells it."""
    number = device.rpartition(":")[2].lower()
    return next((row for row in tables().gpu_drivers.support if number.startswith(row.pci or ("-",))), None)


def unlisted_before(gpu: str, driver: str) -> str | None:
    """The release whose list names a GPU first, if a Linux driver's own does not name it; None if it does."""
    row = next((row for row in tables().gpu_drivers.listed if gpu in row.names), None)
    if row is None:
        return None
    own = [each for each in row.since if versions.major(each) == versions.major(driver)]
    first = own[0] if own else row.since[0]
    return None if versions.at_least(driver, first) else first


def host_of_gpu(gpu: str) -> Host | None:
    """The processor that a GPU is soldered to; None for those that any machine may have."""
    return next((row for row in tables().gpu_drivers.host if gpu in row.names), None)


# Questions about compute capabilities: generations, families, renamings.


@cache
def _architectures() -> dict[Capability, Architecture]:
    return {row.capability: row for row in tables().architectures.architecture}


def seconds_to_compile(ptx: int) -> tuple[float, float]:
    """How long the driver takes for so many bytes of PTX: at least, and at most."""
    rate = tables().architectures.compiling
    return ptx / rate.fastest, ptx / rate.slowest


def memory_to_compile(ptx: int) -> int:
    """Bytes that ptxas takes for one piece of PTX, at most."""
    rate = tables().architectures.compiling
    return rate.memory + rate.memory_a_byte * ptx


def find_architecture(capability: Capability) -> Architecture:
    """The row of a capability: its generation, whether it is a Tegra, its family."""
    if row := _architectures().get(capability):
        return row
    near = wording.similar_names(str(capability), map(str, _architectures()))
    hint = "" if near else "'cuwheel lookup gpu' lists the GPUs and their capabilities"
    raise UnknownNameError("compute capability", str(capability), near, hint=hint)


@lru_cache(maxsize=256)
def current_capability(capability: Capability) -> Capability:
    """The same hardware under its present number: Thor was 10.1 before it became 11.0."""
    row = _architectures().get(capability)
    return row.renamed_to if row and row.renamed_to else capability


def is_tegra(capability: Capability) -> bool:
    """Whether GPUs of it are Tegras, as far as the table knows, whatever number it goes by."""
    row = _architectures().get(current_capability(capability))
    return row is not None and row.tegra


def family_of(capability: Capability) -> tuple[Capability, ...]:
    """The capabilities that `f` code for this one serves; none where the table has no family."""
    row = _architectures().get(capability)
    return tuple(current_capability(each) for each in row.family) if row else ()


@cache
def current_capabilities() -> tuple[Capability, ...]:
    """All of them, oldest first, each under its present number."""
    return tuple(sorted(capability for capability, row in _architectures().items() if not row.renamed_to))
