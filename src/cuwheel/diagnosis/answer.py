"""The answer of `cuwheel explain`: what a diagnosis says of a log, which JSON and the report show."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from cuwheel.diagnosis.case import Heard, RecordedCall, WayOut
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.known import Version
from cuwheel.support.answer import Answer
from cuwheel.support.cause import Cause, Evidence
from cuwheel.verdicts.verdict import Verdict


class KnownCause(Struct, frozen=True, kw_only=True):
    id: str
    family: str
    title: str
    why: str


class Explain(Answer, frozen=True, kw_only=True):
    """`causes`: the best first; none where no known cause fits. `lines`: of the log.

    `versions`: what the log says of versions, GPUs and libraries, with the line (0: from elsewhere). `situations`:
    where it happened, as far as it shows. `tried`: the commands that the log shows. `known`: with --list, all causes.
    `call`: of a record, the one that is explained, which is then the log. `similar`: where there are no causes, those
    that speak in its words. `prose`: lines that somebody wrote and no program printed; they are not searched.
    `command`: the compiler call that the log shows before the first evidence. `unread`: lines in the middle of a log
    that is too long to search; its beginning and its end are searched. `understood`: where there are no causes, who
    says last that something failed.
    """

    is_masked: ClassVar[bool] = True

    schema: Literal["cuwheel.explain/1"] = "cuwheel.explain/1"
    log: str
    lines: int
    causes: tuple[Cause, ...]
    ways_out: tuple[WayOut, ...]
    versions: tuple[Version, ...]
    situations: tuple[str, ...]
    tried: tuple[Evidence, ...]
    verdicts: tuple[Verdict, ...] = ()
    known: tuple[KnownCause, ...] = ()
    call: RecordedCall | None = None
    similar: tuple[KnownCause, ...] = ()
    prose: int = 0
    command: Evidence | None = None
    unread: int = 0
    understood: tuple[Heard, ...] = ()

    @property
    def succeeded(self) -> bool:
        """False where no cause is known."""
        return bool(self.causes or self.known)


def all_known() -> Explain:
    return Explain(
        log="",
        lines=0,
        causes=(),
        ways_out=(),
        versions=(),
        situations=(),
        tried=(),
        known=tuple(map(known_cause, knowledge().causes)),
    )


def known_cause(id_: str) -> KnownCause:
    file = knowledge().causes[id_]
    return KnownCause(id=id_, family=file.family, title=file.title, why=" ".join(file.why.split()))
