"""A wheel of another processor, loaded and imported under qemu-user: an emulator, and a root file system with a Python.

What is proven so is that it installs, loads and imports. There is no GPU under an emulator: that is for a kit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import ToolError, UnavailableError
from cuwheel.facts.tables import tables
from cuwheel.machine import system
from cuwheel.machine.fleet import Machine
from cuwheel.machine.world import World
from cuwheel.network.venvs import Python
from cuwheel.support import process, quoting
from cuwheel.verdicts import wheel_tags
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions
from cuwheel_core.wheel.tags import platform_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.facts.rows.toolchains import EmulatedPython

_ASK_S = 60.0
SLOWER = 5  # how much more time a check gets than where its processor is
_PLACES = ("usr/local/bin", "usr/bin", "bin")
_NAME = re.compile(r"python3\.\d+", re.ASCII)
_QUESTION = (
    "import os, sys; print(os.uname().machine, os.confstr('CS_GNU_LIBC_VERSION').split()[-1], sys.version.split()[0])"
)
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)", re.ASCII)
_WRAPPER = """\
#!/bin/sh
exec {emulator} -L {sysroot} -0 {place} {python} "$@"
"""
_CONFIGURATION = """\
home = {home}
include-system-site-packages = false
version = {version}
"""


class Emulator(Struct, frozen=True, kw_only=True):
    """`program`: qemu of that processor. `sysroot`: where its Python and its C library (`glibc`) are."""

    cpu: str
    program: str
    version: str
    sysroot: Path
    python: Python
    glibc: str

    @property
    def words(self) -> str:
        return f"{Path(self.program).name} {self.version}".strip()

    def machine(self, here: Machine) -> Machine:
        """What the wheel meets: another processor, the C library of the root file system, and no GPU."""
        world = World.here()
        world.root, world.cpu, world.libc_version = self.sysroot, self.cpu, self.glibc
        found = system.probe_system(world)
        return Machine(
            name=f"{self.cpu} under {Path(self.program).name}",
            capability=None,
            os="linux",
            cpu=self.cpu,
            glibc=self.glibc,
            glibcxx=found.glibcxx.value if found.glibcxx else None,
            python=self.python.version,
            torch=here.torch,
            torch_cuda=here.torch_cuda,
            torch_cxx11_abi=here.torch_cxx11_abi,
            jax_cuda=here.jax_cuda,
            libraries=here.libraries,
            loads=here.loads,
        )

    def make_environment(self, folder: Path) -> Path:
        """A virtual environment whose interpreter starts the emulator; so does what it starts by `sys.executable`."""
        place = folder / "bin" / "python"
        place.parent.mkdir(parents=True)
        (folder / "lib" / f"python{self.python.minor}" / "site-packages").mkdir(parents=True)
        inner = Path(self.python.path)
        words = {"emulator": self.program, "sysroot": self.sysroot, "place": place, "python": inner}
        text = _WRAPPER.format(**{name: shlex.quote(str(each)) for name, each in words.items()})
        place.write_text(text, encoding="utf-8")
        place.chmod(0o755)
        settings = _CONFIGURATION.format(home=inner.parent, version=self.python.version)
        (folder / "pyvenv.cfg").write_text(settings, encoding="utf-8")
        for name in ("python3", f"python{self.python.minor}"):
            place.with_name(name).symlink_to("python")
        return place


def foreign_processor(survey: Survey, here: Machine) -> str | None:
    """The processor of a wheel for Linux that is another than this machine's; None where it may run here."""
    tags = survey.distribution.tags if survey.distribution else ()
    wanted = [platform_of(tag) for tag in tags]
    named = {each.cpu for each in wanted if each.os == "linux" and each.cpu}
    if here.os != "linux" or len(named) != 1 or len(named) < len({(each.os, each.cpu) for each in wanted}):
        return None
    (cpu,) = named
    return cpu if here.cpu and cpu != here.cpu else None


def find_emulator(
    cpu: str, sysroot: Path | None, version: str | None = None, tags: Sequence[str] = (), *, offline: bool = False
) -> Emulator:
    """Finds an emulator, with the newest Python of the root file system, or the one of that version (`3.11`).

    Without a root file system with Debian's Python, the first that wheels with these tags take.
    """
    program = process.find_program(f"qemu-{cpu}") or process.find_program(f"qemu-{cpu}-static")
    if program is None:
        raise UnavailableError(
            f"it is for {cpu}, and qemu-{cpu}, under which it could be imported here, is not installed",
            hint="apt install qemu-user (dnf install qemu-user), or take it to such a machine: cuwheel verify WHEEL "
            "--pack kit.pyz; --static looks at the file alone",
        )
    brought = sysroot is None
    sysroot = sysroot or _brought_root(cpu, version, tags, Path(program).name, offline=offline)
    said = process.run([program, "--version"], timeout=_ASK_S, check=False).stdout
    match = _VERSION.search(said)
    root = sysroot.absolute()
    tried = []
    for path in _interpreters(root, version):
        answer = _asked(program, root, path)
        if answer and answer[0] == cpu:
            python = Python(
                path=str(path), version=answer[2], found_via=str(sysroot) if brought else f"--sysroot {sysroot}"
            )
            return Emulator(
                cpu=cpu,
                program=program,
                version=match[1] if match else "",
                sysroot=root,
                python=python,
                glibc=answer[1],
            )
        tried.append(f"{path} ({f'is for {answer[0]}' if answer else 'does not run'})")
    found = f": {', '.join(tried)}" if tried else ""
    hint = quoting.here([program, "-L", str(root), str(root / "usr/bin/python3"), "--version"]) + "   (must answer)"
    raise UnavailableError(f"{sysroot} has no Python {version or 3} for {cpu}{found}", hint=hint)


def _brought_root(cpu: str, version: str | None, tags: Sequence[str], program: str, *, offline: bool) -> Path:
    from cuwheel.toolchains import cross  # noqa: PLC0415 - most wheels are for the processor that is here
    from cuwheel.toolchains.store import open_store  # noqa: PLC0415
    from cuwheel.toolchains.workplace import Surroundings  # noqa: PLC0415

    rows = [each for each in tables().toolchains.emulated if each.cpu == cpu and version in (None, each.python)]
    taken = [each for each in rows if not tags or _takes(each, tags)]
    try:
        if not rows:
            known = ", ".join(f"{each.python} ({each.suite})" for each in tables().toolchains.emulated)
            raise UnavailableError(f"of Debian's for {cpu} there is no Python {version or 3}, only {known}")
        return cross.python_root((taken or rows)[0], Surroundings.here(open_store(None)), offline=offline)
    except CuwheelError as error:
        raise UnavailableError(
            f"it is for {cpu}: under {program} it could be imported, with a root file system for {cpu} that has a "
            f"Python, and none could be made: {error.message}",
            hint="--sysroot FOLDER (of a board, an exported image, or by debootstrap); or take it to such a machine: "
            "cuwheel verify WHEEL --pack kit.pyz",
        ) from error


def _takes(row: EmulatedPython, tags: Sequence[str]) -> bool:
    there = Machine(name=row.suite, capability=None, os="linux", cpu=row.cpu, glibc=row.glibc, python=row.python)
    return not wheel_tags.fits_on_machine(tags, there)[0].problems


def _interpreters(root: Path, version: str | None) -> list[Path]:
    """The newest first, one for each version."""
    found: dict[str, Path] = {}
    for place in _PLACES:
        for path in (root / place).glob("python3.*"):
            if _NAME.fullmatch(path.name) and path.is_file():
                found.setdefault(path.name.removeprefix("python"), path)
    return [found[each] for each in sorted(found, key=versions.key, reverse=True) if version in (None, each)]


def _asked(program: str, root: Path, path: Path) -> tuple[str, str, str] | None:
    try:
        done = process.run([program, "-L", str(root), str(path), "-I", "-c", _QUESTION], timeout=_ASK_S)
    except ToolError:
        return None
    words = done.stdout.split()
    return (words[0], words[1], words[2]) if len(words) == 3 else None  # noqa: PLR2004 - of the question
