"""Where builds are tested: machines without CUDA, with little room or no network, and packages that are quick to build.

A machine without something is this one with that thing out of sight, in a namespace of its own: what a program sees
there is what it would see on such a machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.support import process
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support import opening
from tests.fixtures import cache, cargo, command, compiled
from tests.fixtures.command import Told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EXAMPLES = Path(__file__).parents[2] / "examples"
CUWHEEL = (sys.executable, "-m", "cuwheel")
MINUTES = 60.0
# Where toolkits lie on machines that have one; also their programs, linked into a folder that is on every PATH.
TOOLKITS = ("/usr/local/cuda", "/usr/local/bin", "/usr/lib/nvidia-cuda-toolkit", "/opt/cuda")
_INSIDE = """\
set -e
for place in $HIDDEN; do
    if [ -d "$place" ]; then mount -t tmpfs none "$place"; fi
done
if [ -n "$SMALL" ]; then mount -t tmpfs -o size="$ROOM" none "$SMALL"; fi
exec "$@"
"""


def toolkit(version: str, *components: str, provider: str = "index", **options: Any) -> Path:
    """The folder of a toolkit in the cache that tests share; skipped, with the reason, where it cannot be had."""
    try:
        made = api.toolchain(
            version, components=list(components), providers=[provider], cache=cache.folder() / "store", **options
        )
    except CuwheelError as error:
        pytest.skip(f"CUDA {version} cannot be had from {provider} here: {error.message.splitlines()[-1]}")
    return Path(made.toolkits[0].folder)


def share_toolkits(store: Path) -> None:
    """A store of a test's own, with the toolkits that tests share, and their locks: one worker makes one."""
    shared = cache.folder() / "store"
    for name in ("toolchains", ".locks"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (store / name).symlink_to(shared / name)


@once
def _can_be_confined() -> str:
    """Why not, or nothing."""
    if not shutil.which("unshare"):
        return "there is no unshare"
    done = process.run(["unshare", "-rmn", "mount", "-t", "tmpfs", "none", "/mnt"], timeout=MINUTES, check=False)
    return "" if done.status == 0 else f"this machine allows no namespaces: {done.stderr.strip()}"


def confined(
    *, hidden: Sequence[str] = TOOLKITS, small: tuple[Path, str] | None = None, network: bool = True
) -> list[str]:
    """The words before a command that take things out of its sight. `small`: a folder, and how much it holds."""
    if reason := _can_be_confined():
        pytest.skip(reason)
    place, room = small or ("", "")
    words = ["unshare", "-rm", *([] if network else ["-n"])]
    return [*words, "env", f"HIDDEN={' '.join(hidden)}", f"SMALL={place}", f"ROOM={room}", "sh", "-c", _INSIDE, "sh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A folder with a store of its own, in which toolkits of the shared one are seen."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def out(self) -> Path:
        return self.folder / "dist"

    def with_toolkits(self, *versions: str, **options: Any) -> World:
        """These are installed already."""
        for version in versions:
            self.link(toolkit(version, **options))
        compiled.our_own(self.store)
        return self

    def link(self, shared: Path) -> None:
        place = self.store / "toolchains" / shared.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(shared)

    def project(self, name: str) -> Path:
        """A copy of an example, to change."""
        if name == "cargo_kernel" and cargo.find() is None:
            pytest.skip(cargo.NONE)
        place = self.folder / name
        shutil.copytree(EXAMPLES / name, place, ignore=shutil.ignore_patterns("target", "build", "__pycache__"))
        return place

    def cuwheel(
        self,
        *words: str | Path,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 5 * MINUTES,
    ) -> Told:
        """By a call, or as a process of its own behind the words `before`."""
        environ = self._environ(env)
        if not before:
            return command.call(*words, env=environ, cwd=self.folder)
        done = process.run(
            [*before, *CUWHEEL, *map(str, words)], timeout=timeout, check=False, env=environ, cwd=self.folder
        )
        return Told(status=done.status, stdout=done.stdout, stderr=done.stderr, seconds=done.seconds)

    def build(self, source: Path | str, *words: str | Path, provider: str = "index", **options: Any) -> Told:
        """`cuwheel build` of this world, as JSON. The toolkit that this machine happens to have is not to be used."""
        always = ("--output", self.out, "--provider", provider, "--json")
        return self.cuwheel("build", source, *always, *words, **options)

    def start(self, *words: str | Path, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Begun, and in a group of its own."""
        return subprocess.Popen(
            [*before, *CUWHEEL, *map(str, words)],
            env=self._environ(None),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _environ(self, more: Mapping[str, str] | None) -> dict[str, str]:
        compiled.our_own(self.store)
        return {**bare(), "CUWHEEL_CACHE": str(self.store), **self.environ, **(more or {})}

    def left_behind(self) -> list[str]:
        """Half-made things where whole ones are expected. A job's own folder is cleared when it is next built in."""
        places = (self.out, self.store / "toolchains", self.store / "downloads", self.store / "sources")
        found = (path for place in places if not place.is_symlink() for path in place.glob("*"))
        marks = (".part", ".making-", ".tmp", "tmp")
        return sorted(path.name for path in found if path.name.startswith(marks) or path.suffix in marks)


@once
def _python_folder() -> str:
    return str(Path(sys.executable).parent)


def bare() -> dict[str, str]:
    """The environment of somebody who never heard of CUDA."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CUDA", "NV", "CUWHEEL", "CMAKE", "TORCH", "MAX_JOBS", "CC", "CXX", "FORCE_CUDA"))
    }
    folders = [each for each in kept.get("PATH", "").split(":") if each and not opening.is_file(f"{each}/nvcc")]
    kept["PATH"] = ":".join([_python_folder(), *folders])
    kept["HOME"] = str(Path.home())
    return kept


def kill_when(child: subprocess.Popen[str], seen: Iterator[bool], patience: float = 2 * MINUTES) -> None:
    """End it and nothing else, without a warning, as soon as `seen` says so."""
    deadline = time.monotonic() + patience
    for yes in seen:
        if yes:
            break
        assert child.poll() is None, f"it ended before: {child.communicate()}"
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait(MINUTES)
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()


def gone(process_id: int, patience: float = 300.0) -> bool:
    """Whether it ends within seconds, or has: who is killed is still seen until somebody has taken note."""
    deadline = time.monotonic() + patience
    stat = Path(f"/proc/{process_id}/stat")
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


KERNEL = """\
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" int run(float *x) { twice<<<1, 1>>>(x); return 0; }
"""
_TINY = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.0"

[tool.setuptools]
packages = ["{name}"]
package-dir = {{"{name}" = "package"}}
package-data = {{"*" = ["*.so"]}}

[tool.cuwheel]
for = ["h100"]
cuda = ["13.0"]
{settings}

[tool.cuwheel.environment]
KERNEL_ARCHS = "{{archs.nvcc}}"
{environment}
"""
_SETUP = """\
import os, shlex, subprocess
from pathlib import Path
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

class Build(build_py):
    def run(self):
        super().run()
        nvcc = {nvcc}
        archs = {archs}
        for source in sorted(Path("package").glob("*.cu")):
            target = Path(self.build_lib, "{name}", source.stem + ".so")
            words = ["-shared", "-Xcompiler", "-fPIC", {options}str(source), "-o", str(target)]
            subprocess.run([nvcc, *shlex.split(archs), *words], check=True)

class Wheel(bdist_wheel):
    def get_tag(self):
        return {tag}

class Binary(Distribution):
    def has_ext_modules(self):
        return True

setup(cmdclass={{"build_py": Build, "bdist_wheel": Wheel}}, distclass=Binary)
"""


def tiny(
    folder: Path,
    *,
    name: str = "tiny",
    nvcc: str = 'os.environ["CUDACXX"]',
    archs: str = 'os.environ["KERNEL_ARCHS"]',
    options: str = "",
    settings: str = "",
    environment: str = "",
    tag: str = '"py3", "none", super().get_tag()[2]',
    kernel: str = KERNEL,
) -> Path:
    """A package with one kernel, built in seconds: setuptools, running nvcc. Texts are Python, for its setup.py."""
    place = folder / name
    (place / "package").mkdir(parents=True)
    (place / "package" / "__init__.py").write_text("")
    (place / "package" / "kernel.cu").write_text(kernel)
    (place / "pyproject.toml").write_text(_TINY.format(name=name, settings=settings, environment=environment))
    (place / "setup.py").write_text(_SETUP.format(name=name, nvcc=nvcc, archs=archs, options=options, tag=tag))
    return place


def wheels(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.whl"))


def architectures(wheel: Path) -> set[str]:
    """Of the device code in a wheel, as `inspect` reads it."""
    return {row.arch for library in api.inspect(wheel).libraries for row in library.device_code}
