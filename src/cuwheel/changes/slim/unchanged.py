"""What is left as it is, and why: libraries that cannot be changed, containers that nobody names, code elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import pe_writer
from cuwheel.changes.binaries.draft import PAGES
from cuwheel.device_code.sections import FATBIN_SECTIONS
from cuwheel.facts import architectures
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few, size
from cuwheel.verdicts import drivers
from cuwheel.verdicts.choice import Device, device_of_machine, loadable_code, possible_entries, serves

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cuwheel.changes.binaries.decisions import SlimOptions
    from cuwheel.device_code.libraries import Compression, Entry, Format, Library

# What a reader says of a file whose parts cannot be trusted to be what they seem.
_DAMAGE = frozenset({"fatbin-damaged", "registration-damaged", "sections-overlap"})
_SHOWN = 5
_MACHINES: dict[Format, Collection[str]] = {"elf": PAGES, "pe": pe_writer.MACHINES}  # that are rewritten


class Reason(NamedTuple):
    """Why a whole library is left as it is."""

    rule: str
    words: str
    fix: str = ""


def reason(library: Library, options: SlimOptions) -> Reason | None:
    if damage := next((each for each in library.findings if each.rule in _DAMAGE), None):
        return Reason("damaged", damage.message, damage.fix)
    if not library.entries:
        return None
    if library.format not in _MACHINES or library.type not in ("shared", "executable"):
        return Reason("not-linked", "it is not linked yet: leave code out when building it")
    if library.machine not in _MACHINES[library.format]:
        return Reason("other-machine", f"binaries for {library.machine} are not rewritten")
    if library.signed and not options.drop_signature:
        return Reason("signed", "it is signed, and no change leaves the signature valid", "add --drop-signature")
    return None


def nothing_for(targets: Sequence[Machine]) -> Reason:
    names = ", ".join(each.name for each in targets)
    return Reason(
        "nothing-for-targets",
        f"nothing in it is for {names}: slimmed, it would be useless",
        "remove the file, or slim it with --force",
    )


def named(library: Library) -> frozenset[int]:
    """The containers that the runtime registers, in the sections made for them: those that may be changed."""
    if not library.registration.wrappers:
        return frozenset()
    inside = (index for index, each in enumerate(library.containers) if each.section in FATBIN_SECTIONS)
    return frozenset(inside) - frozenset(library.registration.unnamed)


def findings(
    library: Library,
    options: SlimOptions,
    fixed: Reason | None,
    wanted: Compression | None,
    decided: Collection[int] = (),
) -> Iterator[Finding]:
    """`decided`: the entries that a plan does not simply leave."""
    if fixed and library.entries:
        yield _finding(fixed.rule, fixed.words, library.entries, options, fix=fixed.fix)
        return
    outside = [
        each
        for index, each in enumerate(library.entries)
        if (each.section not in FATBIN_SECTIONS or each.container is None) and index not in decided
    ]
    if outside:
        words = "device code is outside the sections that the CUDA runtime registers: the library loads it itself"
        yield _finding("code-elsewhere", words, outside, options)
    inside = [each for each in library.entries if each.section in FATBIN_SECTIONS and each.container is not None]
    known = named(library)
    gone = {library.entries[index].container for index in decided}
    nameless = [each for each in inside if each.container not in known and each.container not in gone]
    if nameless:
        words = "nothing that the CUDA runtime registers refers to these containers: the library finds them itself"
        yield _finding("container-without-wrapper", words, nameless, options)
    plain = {(each.container, each.kind, each.arch) for each in inside if not each.debug}
    debug = [each for each in inside if each.debug and (each.container, each.kind, each.arch) not in plain]
    if options.strip_debug and debug:
        words = "device code with debug information has no counterpart without it: build without -G"
        yield _finding("debug-code", words, debug, options)
    if wanted == "zstd":
        yield from _driver_condition(library, options)


def _finding(rule: str, words: str, entries: Sequence[Entry], options: SlimOptions, fix: str = "") -> Finding:
    could = _could_save(entries, options)
    places = first_few(entries, _SHOWN, lambda each: f"{each.arch} in {each.section or 'the file'} at {each.offset:#x}")
    saving = f"; {size(could)} of it are for other GPUs" if could else ""
    return Finding(rule=rule, severity="note", message=f"left unchanged: {words}{saving}", evidence=places, fix=fix)


def _could_save(entries: Sequence[Entry], options: SlimOptions) -> int:
    """What dropping would save of these, were it safe."""
    devices = [device_of_machine(each) for each in options.targets or ()]
    if not devices or None in devices:
        return 0
    groups: dict[int | None, list[Entry]] = {}
    for each in entries:
        groups.setdefault(each.container, []).append(each)
    saved = 0
    for container, group in groups.items():
        kept = {index for on in devices if on for index in possible_entries(group, on)}
        if container is None:  # each stands alone
            kept = {index for index, each in enumerate(group) if fits(each, devices)}
        saved += sum(
            each.header_size + each.bytes
            for index, each in enumerate(group)
            if index not in kept and loadable_code(each) is not None
        )
    return saved


def fits(entry: Entry, devices: Sequence[Device | None]) -> bool:
    """Whether one of these GPUs could load it, or nobody can tell."""
    found = loadable_code(entry)
    return found is None or any(on and serves(found.arch, on.capability) for on in devices)


def needs_relocatable(machines: Sequence[str]) -> Finding:
    return Finding(
        rule="relocatable-code-needed",
        severity="error",
        message=f"the relocatable code cannot be removed: the linked code has nothing for {', '.join(machines)}, "
        "and the driver links the relocatable code there",
        fix="leave out --drop-relocatable, or use --force",
    )


def _driver_condition(library: Library, options: SlimOptions) -> Iterator[Finding]:
    """ZSTD wants a driver that an unknown one may not be."""
    machines = options.targets or (Machine(name="any", capability=None),)
    floors = (drivers.zstd_floor(library, each) for each in machines if not each.driver)
    if floor := next((each for each in floors if each), None):
        yield Finding(
            rule="zstd-needs-driver",
            severity="note",
            message=f"code compressed with ZSTD needs driver {floor} or later",
            fix="give the drivers of the machines: if one is older, LZ4 is used instead",
        )


def served(library: Library) -> tuple[Device, ...]:
    """Every device that anything in the library is for."""
    archs = [found.arch for each in library.entries if (found := loadable_code(each))]
    fleet = architectures.current_capabilities()
    return tuple(Device(capability=each) for each in fleet if any(serves(arch, each) for arch in archs))
