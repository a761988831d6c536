"""What `cuwheel find` answers: every file of a package, the best first, and why each other one is not it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.errors import EXIT_INTERRUPTED, EXIT_UNKNOWN
from cuwheel.machine.fleet import Machine
from cuwheel.support.answer import Answer
from cuwheel.verdicts.check_rules.host import GPU_NOT_KNOWN
from cuwheel_core.verdicts.choice import CudaError
from cuwheel_core.verdicts.condition import Condition, texts
from cuwheel_core.verdicts.predict import Outcome

Origin: TypeAlias = Literal["facts file", "cache", "catalogue", "wheel"]
Stopped: TypeAlias = Literal["budget", "slow", "interrupted"]


class Skipped(Enum):
    """Why nobody looked into a wheel, or not to its end."""

    ALREADY_RUNS = "already-runs"
    NOTHING_AGAINST = "nothing-against"
    LATER_PATCH_FAILS = "later-patch-fails"
    LATER_PATCH_NO_BETTER = "later-patch-no-better"
    BETWEEN_ALIKE = "between-alike"
    SAME_BUILD = "same-build"
    MANY_READ = "many-read"
    MANY_LARGE = "many-large"
    SERVER_SLOW = "server-slow"
    INTERRUPTED = "interrupted"
    OVER_BUDGET = "over-budget"
    CUT_SHORT = "cut-short"
    TOO_SLOW = "too-slow"
    UNREADABLE = "unreadable"


class _Words(NamedTuple):
    """`of_many`: of several files, where each has other names in `of_one`."""

    of_one: str
    of_many: str = ""


_SKIPPED: Mapping[Skipped, _Words] = {
    Skipped.ALREADY_RUNS: _Words("not looked into: {} runs"),
    Skipped.NOTHING_AGAINST: _Words("not looked into: {} has nothing that speaks against it"),
    Skipped.LATER_PATCH_FAILS: _Words("not looked into: a later patch of it does not run"),
    Skipped.LATER_PATCH_NO_BETTER: _Words("not looked into: a later patch of it is no better"),
    Skipped.BETWEEN_ALIKE: _Words(
        "not looked into: neither {} nor {} runs", "not looked into: neither the one before nor the one after runs"
    ),
    Skipped.SAME_BUILD: _Words("not looked into: {} is of the same release"),
    Skipped.MANY_READ: _Words("not looked into: {} newer wheels were read; name a version to ask about this one"),
    Skipped.MANY_LARGE: _Words("not looked into: {} newer wheels were larger than what is left of --budget"),
    Skipped.SERVER_SLOW: _Words("not looked into: the server is too slow"),
    Skipped.INTERRUPTED: _Words("not looked into: it was interrupted before"),
    Skipped.OVER_BUDGET: _Words("not read: {} of --budget"),
    Skipped.CUT_SHORT: _Words("not read to its end: it was interrupted"),
    Skipped.TOO_SLOW: _Words("not read: {}"),
    Skipped.UNREADABLE: _Words("not read: {}"),
}


def words_of_skipped(why: Skipped, *names: object, of_many: bool = False) -> str:
    """The reason in words; `of_many`: without the names that differ from file to file."""
    words = _SKIPPED[why]
    return words.of_many if of_many and words.of_many else words.of_one.format(*names)


class FoundFile(Struct, frozen=True, kw_only=True):
    """A file of an index. `known_from`: a `facts file`, the `cache`, the `wheel`; null where nobody looked into it.

    `requires`: what was not known and must hold; `conditions`: that in words.
    `reasons`: of what fails, why; of what runs, the code that it takes. `skipped`: why nobody looked into it, as a
    word. `chosen`: the one that is best.
    `torch`: of an extension, the minor releases of torch whose symbols and versions it goes with. `compiling`: what
    compiling its PTX ahead of time takes of one core in seconds, at least and at most, where that helps. `advice`: a
    setting that is not needed, and with which it loads a library that suits the driver better.
    """

    file: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    kind: Literal["wheel", "source"]
    index: str
    outcome: Outcome = "unknown"
    chosen: bool = False
    reasons: tuple[str, ...] = ()
    skipped: Skipped | None = None
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()
    predicted_error: CudaError | None = None
    known_from: Origin | None = None
    torch: tuple[str, ...] | None = None
    compiling: tuple[float, float] | None = None
    advice: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))

    @property
    def needs_a_gpu_to_tell(self) -> bool:
        """It may run: nobody can tell, since the machine has no GPU that is known."""
        return self.outcome == "unknown" and self.reasons[:1] == (GPU_NOT_KNOWN,)


class Served(Struct, frozen=True, kw_only=True):
    """What one kind of machine gets: `chosen`, or null and `why` nothing. `machines`: their names, all alike, or the
    GPUs of one computer.
    """

    machines: tuple[str, ...]
    chosen: FoundFile | None
    why: str = ""


class Find(Answer, frozen=True, kw_only=True):
    """Candidates, the best first. `downloaded`: bytes of wheels that had to be read.

    `releases`: how many have a wheel for such a machine; `judged`: how many of these were looked into. `stopped`: why
    it ended before it knew the best: the budget was spent, the server was too slow, or somebody pressed Ctrl-C.
    `previews`: pre-releases that were passed over and are newer than what is chosen; `--pre` takes them, too.
    `elsewhere`: for a Jetson that none is known to serve, where its wheels come from. `extras`: that were asked for.
    `rows`: of several machines what each gets; then `candidates` says what all of them together make of a file, and
    chosen is one that every machine gets. `lock`: the command that locks for them, as words; `install`: that of one
    machine, from the same places.
    """

    schema: Literal["cuwheel.find/1"] = "cuwheel.find/1"
    name: str
    machines: tuple[Machine, ...]
    candidates: tuple[FoundFile, ...]
    downloaded: int
    releases: int = 0
    judged: int = 0
    stopped: Stopped | None = None
    previews: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    rows: tuple[Served, ...] = ()
    lock: tuple[str, ...] = ()
    install: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        """False where there is none to take, or a machine has none."""
        if self.rows:
            return all(each.chosen for each in self.rows)
        return any(each.chosen for each in self.candidates)

    @property
    def exit_status(self) -> int | None:
        """What is known is shown, and whoever called hears of the Ctrl-C all the same; not known is not yes."""
        if self.stopped == "interrupted":
            return EXIT_INTERRUPTED
        taken = (*self.candidates, *(each.chosen for each in self.rows if each.chosen))
        undecided = self.succeeded and any(each.chosen and each.needs_a_gpu_to_tell for each in taken)
        return EXIT_UNKNOWN if undecided else None
