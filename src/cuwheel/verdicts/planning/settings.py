"""What is wished for, and which wishes cannot be had together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import ConfigurationError, CuwheelError, UsageError
from cuwheel.facts import toolkits
from cuwheel.machine import named
from cuwheel.machine.fleet import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.fleet import Refinement

ALL = "all"
_VERSION = re.compile(r"\d+(\.\d+)*", re.ASCII)


class Wishes(Struct, frozen=True, kw_only=True):
    """`future`: PTX for GPUs later than these. `native`: for every GPU a cubin of its own architecture.

    `specific`: `a` cubins where the toolkit has them; `family`: `f` cubins. `ptx`: False to do without any.
    """

    future: bool = False
    native: bool = False
    specific: bool = False
    family: bool = False
    ptx: bool = True


def conflicts(wishes: Wishes) -> Iterator[str]:
    """Wishes that exclude each other, one sentence a pair."""
    if wishes.future and not wishes.ptx:
        yield "--future and --no-ptx cannot be used together: only PTX reaches future GPUs"
    if wishes.specific and wishes.family:
        yield (
            "--specific and --family cannot be used together: 'a' code runs on one capability only, 'f' code on its "
            "whole family"
        )


def find_toolkits(names: Sequence[str], errors: list[CuwheelError]) -> tuple[Toolkit, ...]:
    """`12.8,13.0` as rows, oldest first; what no table knows is appended to `errors`."""
    found = []
    words = split(names)
    if names and not words:
        errors.append(UsageError("--cuda is empty", hint="leave it out, or use --cuda 12.8,13.0"))
    for name in words:
        try:
            found.append(toolkits.find_toolkit(name))
        except CuwheelError as error:
            errors.append(error)
    order = toolkits.all_toolkits()
    return tuple(sorted(dict.fromkeys(found), key=order.index))


def find_machines(
    names: Iterable[str | Path | Machine],
    every: Callable[[], Sequence[Machine]],
    errors: list[CuwheelError],
    refine: Refinement | None = None,
) -> tuple[Machine, ...]:
    """What `--for` and `--on` name, `all` being what `every` gives; what is wrong with them goes to `errors`.

    `refine`: what else is known of all of them.
    """
    found: list[Machine] = []
    if refine and (wrong := _not_versions(refine)):
        errors += wrong
        refine = None
    for name in names:
        if isinstance(name, Machine):
            found.append(name)
            continue
        for word in [str(name)] if Path(name).is_file() else split([str(name)]):
            try:
                found += every() if word.lower() == ALL else named.machines([word])
            except CuwheelError as error:
                errors.append(error)
    return tuple(dict.fromkeys(refine.apply(each) for each in found) if refine else dict.fromkeys(found))


def _not_versions(refine: Refinement) -> list[CuwheelError]:
    given = {name: getattr(refine, name) for name in ("driver", "driver_cuda", "torch_cuda")}
    return [
        UsageError(f"--{name.replace('_', '-')} {value!r} is not a version")
        for name, value in given.items()
        if value is not None and not _VERSION.fullmatch(value)
    ]


def split(values: Iterable[str]) -> list[str]:
    """Repeated or with commas, all the same."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def cmake_version(text: str | None, errors: list[CuwheelError]) -> str | None:
    if text is None or _VERSION.fullmatch(text.strip()):
        return text
    errors.append(UsageError(f"{text!r} is not a version of CMake", hint="--cmake 3.28"))
    return None


def compatible(wishes: Wishes) -> Wishes:
    """The wishes without those that exclude each other: to see what else is wrong."""
    both = wishes.specific and wishes.family
    return Wishes(
        future=wishes.future and wishes.ptx,
        native=wishes.native,
        specific=wishes.specific and not both,
        family=wishes.family and not both,
        ptx=wishes.ptx or wishes.future,
    )


def refuse(errors: Sequence[CuwheelError], contradictions: Sequence[str]) -> None:
    """Raise what is wrong, all of it at once; a single error as it is, with its own exit code and hint."""
    if len(errors) == 1 and not contradictions:
        raise errors[0]
    problems = [f"{error.message}; {error.hint}" if error.hint else error.message for error in errors]
    if problems or contradictions:
        raise ConfigurationError("the plan", [*problems, *contradictions], hint="cuwheel plan --help")
