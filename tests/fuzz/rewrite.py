"""Whole wheels through slim, stamp and repair.

Refused with a documented status and nothing left behind, or a wheel that is no worse than the one before: RECORD lists
what is in it, `verify` finds nothing new, and what was not to be changed is as it was, byte for byte.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import cli
from cuwheel.changes.repair import act
from cuwheel.changes.stamp import stamp
from cuwheel.device_code.description import Description
from cuwheel.device_code.survey import survey
from cuwheel.errors import EXIT_BUG
from cuwheel.proving import wheel_rules
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from tests.fixtures import manifest, small_wheel, windows
from tests.fuzz import wheels
from tests.fuzz.harness import Harness
from tests.property import loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.changes.repair.decide import Decision

NAME = "pkg-1.0-py3-none-linux_x86_64.whl"
FIXTURES = {each.path.read_bytes() for each in manifest.load() if each.format in ("elf", "pe")}
_BIN = manifest.HERE / "bin"


class Grounds:
    """A wheel in a folder of its own; what a verb makes of it goes to another."""

    def __init__(self, folder: Path) -> None:
        self.wheel, self.out = folder / "in" / NAME, folder / "out"
        self.wheel.parent.mkdir()

    def renew(self, data: bytes) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.wheel.write_bytes(data)

    def made(self) -> Path | None:
        """The one file that may be there."""
        there = list(self.out.rglob("*")) if self.out.is_dir() else []
        if len(there) > 1 or any(each.suffix != ".whl" or not each.is_file() for each in there):
            raise AssertionError(f"left behind: {sorted(each.name for each in there)}")
        return there[0] if there else None


def command(*words: str | Path) -> bool:
    """Whether it succeeded."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = cli.main([*map(str, words), "--quiet", "--json"])
    if status == EXIT_BUG or "Traceback" in said.getvalue():
        raise AssertionError(f"ended with {status}: {said.getvalue()[-3000:]}")
    return status == 0


def slim(grounds: Grounds) -> bool:
    return command("slim", grounds.wheel, "--for", "h100", "-o", grounds.out, "--verbose")


def repair(grounds: Grounds) -> bool:
    return command("repair", grounds.wheel, "-o", grounds.out, "--verbose")


def stamped(grounds: Grounds) -> bool:
    wish = stamp.StampOptions(version="1.0+cu130", description=Description(cuda="13.0", archs=("sm_90",)))
    try:
        stamp.stamp(grounds.wheel, grounds.out, wish)
    except CuwheelError:
        return False
    return True


VERBS: dict[bytes, Callable[[Grounds], bool]] = {b"slim": slim, b"stamp": stamped, b"repair": repair}


def grafted(decision: Decision, folder: Path) -> Path:
    """Instead of auditwheel, which takes a second and is others' to fuzz: it has nothing to graft here."""
    return Path(shutil.copyfile(decision.before.wheel, folder / decision.before.wheel.name))


def through(grounds: Grounds, data: bytes) -> None:
    name, _, body = data.partition(b"\n")
    if name not in VERBS:
        return
    grounds.renew(body)
    done = VERBS[name](grounds)
    if grounds.wheel.read_bytes() != body or len(list(grounds.wheel.parent.iterdir())) != 1:
        raise AssertionError("the original was changed")
    made = grounds.made()
    if made and not done:
        raise AssertionError(f"{name.decode()} failed, and left {made.name}")
    if made:
        compare(grounds.wheel, made, changes_libraries=name != b"stamp")


def compare(before: Path, after: Path, *, changes_libraries: bool) -> None:
    with WheelFile(before) as was, WheelFile(after) as now:
        if wrong := now.wrong_hashes():
            raise AssertionError(f"RECORD is wrong about {wrong}")
        if now.unlisted and not was.unlisted:
            raise AssertionError(f"RECORD and the files do not match: {now.unlisted}")
        if new := errors(now) - errors(was):
            raise AssertionError(f"verify finds what it did not find before: {new}")
        with zipfile.ZipFile(before) as old, zipfile.ZipFile(after) as new_:
            for member in was.members.keys() & now.members.keys():
                unlike(member, old.read(member), new_.read(member), changes_libraries=changes_libraries)


def errors(wheel: WheelFile) -> set[str]:
    found = wheel_rules.examine(WheelSubject(wheel=wheel, survey=survey(wheel.path)))
    return {each.rule for each in found if each.severity == "error"}


def unlike(member: str, old: bytes, new: bytes, *, changes_libraries: bool) -> None:
    if old == new or ".dist-info/" in member:
        return
    if not changes_libraries or not old.startswith((b"\x7fELF", b"MZ")):
        raise AssertionError(f"{member} is not as it was")
    if old in FIXTURES and len(new) < len(old) and (found := host_differences(old, new)):
        raise AssertionError(f"{member}: {found[:3]}")


def host_differences(old: bytes, new: bytes) -> list[str]:
    if old.startswith(b"MZ"):
        return windows.host_differences(old, new)
    return loaded.host_differences(old, new, loaded.moving(old))


def seeds(folder: Path) -> list[bytes]:
    """Small enough that libFuzzer's longest input holds them."""
    sets = (
        ("windows-130.dll",),
        ("plain-130.so",),
        ("all-124.so", "amd.so"),
        ("none-130.so", "hidden-130.so", "debug-130.so"),
    )
    found = []
    for libraries in sets:
        files: dict[str, str | bytes] = {f"pkg/{name}": (_BIN / name).read_bytes() for name in libraries}
        files |= {"pkg/__init__.py": "x = 1\n", "pkg-1.0.data/scripts/tool": "#!python\n"}
        made = small_wheel.Wheel(name="pkg", tag="py3-none-linux_x86_64", files=files).write(folder)
        found += [verb + b"\n" + made.read_bytes() for verb in VERBS]
        made.unlink()
    return found


def _harness(folder: Path) -> Harness:
    warnings.simplefilter("ignore", UserWarning)  # zipfile's, of names that are there twice
    act._grafted = grafted
    grounds = Grounds(folder)
    return Harness(seeds(folder), lambda data: through(grounds, data), wheels.mutate)


HARNESSES = {"rewrite": _harness}
