"""Wheels of several CUDA versions that differ in added libraries alone, as one that has them all."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.stamp import described, guard, restamp, stamp
from cuwheel.device_code import description
from cuwheel.device_code.description import Description, MergedPart
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import MalformedError
from cuwheel.facts import versions
from cuwheel.support import locking
from cuwheel.support.files import errors_of
from cuwheel.support.wording import first_few
from cuwheel.verdicts import wheel_tags
from cuwheel.wheel.edit import Taken, WheelEdit
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.record import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.device_code.libraries import Survey
    from cuwheel.wheel.metadata import WheelName

_SHOWN = 5
_OWN = ("RECORD", "WHEEL", description.NAME)  # written anew


class _Opened(Struct, frozen=True, kw_only=True):
    wheel: WheelFile
    digests: dict[str, Digest]
    description: Description

    @property
    def label(self) -> str:
        return f"the wheel for CUDA {self.description.cuda}"

    @property
    def name(self) -> WheelName:
        assert self.wheel.name is not None  # noqa: S101 - it is sound
        return self.wheel.name

    @property
    def promise(self) -> tuple[bool, tuple[int, ...]]:
        """How much its tags promise, the least first: a plain linux tag promises nothing."""
        found = [wheel_tags.platform_of(each).glibc for each in self.name.platforms]
        known = [versions.key(each) for each in found if each]
        return not known, min(known, default=())

    def is_common(self, name: str) -> bool:
        """Whether it must be the same in all of them. The guard goes by what is in the whole wheel."""
        own = name.removeprefix(self.wheel.info) if name.startswith(self.wheel.info) else ""
        return own not in _OWN and name.rpartition("/")[2] != guard.FILE


def merge(wheels: Sequence[Path], to: Path) -> Path:
    """The new wheel, in the folder `to`. Raises with every difference that is not an added file."""
    with ExitStack() as stack:
        opened = [_open(each, stack) for each in wheels]
        if conflicts := list(dict.fromkeys(_conflicts(opened))):
            raise MalformedError(
                " and ".join(each.label for each in opened),
                "cannot be one:\n" + "\n".join(f"  {each}" for each in conflicts),
                hint="only libraries named after their CUDA can be merged; to get separate wheels: --naming local",
            )
        platforms = max(opened, key=lambda each: each.promise).name.platforms
        name = str(replace(opened[0].name, platform=".".join(platforms)))
        to.mkdir(parents=True, exist_ok=True)
        with errors_of(to / name, f"{to / name} was not written"), locking.scratch(to) as folder:
            made = folder / name
            _write(opened, platforms, made)
            with WheelFile(made) as merged:
                found = survey_wheel(merged, detail="containers")
                wish = stamp.Wish(description=_described(opened, found), guard=restamp.guard_of(merged, found))
                return stamp.stamp(merged, to, wish)


def _open(path: Path, stack: ExitStack) -> _Opened:
    wheel = stack.enter_context(WheelFile(path))
    stamp.must_be_publishable(wheel)
    own_description = description.of_wheel(wheel)
    if own_description is None:
        raise MalformedError(path, "was not built by cuwheel: it has no description", hint="cuwheel build SOURCE")
    return _Opened(
        wheel=wheel, digests={each: wheel.digest(each) for each in wheel.members}, description=own_description
    )


def _conflicts(opened: Sequence[_Opened]) -> Iterator[str]:
    for first, other in combinations(opened, 2):
        for what, field in (("name", "name"), ("version", "version"), ("Python tag", "python"), ("ABI", "abi")):
            one, two = getattr(first.name, field), getattr(other.name, field)
            if one != two:
                yield f"the {what} is {one} in {first.label}, {two} in {other.label}"
        machines = [{wheel_tags.platform_of(each).cpu for each in it.name.platforms} for it in (first, other)]
        if machines[0] != machines[1]:
            yield f"the platform is {first.name.platform} in {first.label}, {other.name.platform} in {other.label}"
        common = first.digests.keys() & other.digests.keys()
        differing = sorted(each for each in common if first.is_common(each) and _differ(first, other, each))
        where = f"in {first.label} and in {other.label}"
        words = [f"{name} is {where}, and not the same{_why(first, other, name)}" for name in differing[:_SHOWN]]
        yield from (*words, *first_few(differing[_SHOWN:], 0, more="more files"))


def _differ(one: _Opened, other: _Opened, name: str) -> bool:
    return one.digests[name] != other.digests[name]


def _why(one: _Opened, other: _Opened, name: str) -> str:
    """Of METADATA, the lines."""
    if name != f"{one.wheel.info}METADATA":
        return ""
    lines = [set((each.wheel.metadata or "").splitlines()) for each in (one, other)]
    return ": " + "; ".join(sorted(lines[0] ^ lines[1])[:_SHOWN])


def _write(opened: Sequence[_Opened], platforms: Sequence[str], made: Path) -> None:
    """Each file once, from the first that has it, as it is compressed there."""
    first = opened[0]
    edit = WheelEdit(first.wheel)
    edit.retag(platforms=platforms)
    there = set(first.wheel.members)
    for each in opened[1:]:
        for name in each.wheel.members:
            if name not in there:
                there.add(name)
                edit.add(name, Taken(each.wheel, name))
    edit.write(made)


def _described(opened: Sequence[_Opened], found: Survey) -> Description:
    descriptions = [each.description for each in opened]
    return replace(
        descriptions[0],
        cuda=", ".join(each.cuda for each in descriptions),
        archs=tuple(dict.fromkeys(arch for each in descriptions for arch in each.archs)),
        ptx=tuple(dict.fromkeys(arch for each in descriptions for arch in each.ptx)),
        coverage=described.reach(found),
        plan=(),
        toolchain=None,
        merged=tuple(
            MergedPart(cuda=each.cuda, archs=each.archs, ptx=each.ptx, toolchain=each.toolchain)
            for each in descriptions
        ),
    )
