"""What of a library may be changed, by its survey: which kinds at all, and which of its containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.plan import PAGES
from cuwheel.device_code.sections import FATBIN_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from cuwheel.device_code.libraries import Library

# What a reader says of a file whose parts cannot be trusted to be what they seem.
_DAMAGE = frozenset({"fatbin-damaged", "registration-damaged", "sections-overlap"})


class Reason(NamedTuple):
    """Why a whole library is left as it is."""

    rule: str
    words: str
    fix: str = ""


def why_untouchable(library: Library, *, drop_signature: bool) -> Reason | None:
    if damage := next((each for each in library.findings if each.rule in _DAMAGE), None):
        return Reason("damaged", damage.message, damage.fix)
    if not library.entries:
        return None
    if library.format not in ("elf", "pe") or library.type not in ("shared", "executable"):
        return Reason("not-linked", "it is not linked yet: leave code out when building it")
    rewritten: Collection[str] = PAGES
    if library.format == "pe":
        from cuwheel.changes.binaries import pe_writer  # noqa: PLC0415 - who decides of ELF files needs no writer

        rewritten = pe_writer.MACHINES
    if library.machine not in rewritten:
        return Reason("other-machine", f"binaries for {library.machine} are not rewritten")
    if library.signed and not drop_signature:
        return Reason("signed", "it is signed, and no change leaves the signature valid", "add --drop-signature")
    return None


def registered_containers(library: Library) -> frozenset[int]:
    """The containers that the runtime registers, in the sections made for them: those that may be changed."""
    if not library.registration.wrappers:
        return frozenset()
    inside = (index for index, each in enumerate(library.containers) if each.section in FATBIN_SECTIONS)
    return frozenset(inside) - frozenset(library.registration.unnamed)
