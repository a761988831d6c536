"""A machine, as far as it matters to CUDA: frozen values, each knowing where it was found.

A profile is written to be sent to somebody else: see `privacy` for what it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from cuwheel.support import codec, files
from cuwheel.support.codec import refuse_newer
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support import printable
from cuwheel_core.support.patterns import lazy_pattern

# Keeps people out of profiles: no user names, host names or home folders.

Value = TypeVar("Value")

# Home folders of other users in a path.
_HOMES = lazy_pattern(r"(/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\:;\s]+")
# Shorter names are words ("a", "pi", "dev") that stand in paths for other reasons.
_SHORTEST_NAME = 3
_NEUTRAL_NAMES = frozenset({"root", "user", "admin", "ubuntu", "debian", "runner", "localhost", "build"})


def scrub(value: Value, *, home: str, names: Iterable[str]) -> Value:
    """`value` with the home folder as `~` and every user or host name in `names` as `<name>`."""
    telling = [name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in _NEUTRAL_NAMES]
    words = (
        re.compile(r"(?<![A-Za-z0-9])(" + "|".join(map(re.escape, telling)) + r")(?![A-Za-z0-9])") if telling else None
    )
    own_home = re.compile(re.escape(home.rstrip("/\\")) + r"(?=[/\\:;\s]|$)") if len(home) > 1 else None

    def clean(text: str) -> str:
        if own_home:
            text = own_home.sub("~", text)
        text = _HOMES.sub(r"\1<name>", text)
        return words.sub("<name>", text) if words else text

    return codec.convert(each_string(codec.builtins(value), clean), type(value))


def each_string(data: object, clean: Callable[[str], str]) -> object:
    """A value of JSON, with all texts in it."""
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        return {key: each_string(item, clean) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [each_string(item, clean) for item in data]
    return data


SCHEMA: Final = "cuwheel.machine/1"
_SCHEMA_NAME = SCHEMA.partition("/")[0]
_MAX_BYTES = 8 * 1024 * 1024
_HINT = "write one with: cuwheel doctor --save FILE"

NvmlState = Literal[
    "ok", "library-missing", "driver-not-loaded", "version-mismatch", "no-permission", "timeout", "error"
]
CompilerKind = Literal["gcc", "clang", "msvc"]


class Fact(Struct, frozen=True, kw_only=True):
    value: str
    found_via: str


class System(Struct, frozen=True, kw_only=True):
    os: Fact
    cpu: Fact
    distribution: Fact | None = None
    glibc: Fact | None = None
    glibcxx: Fact | None = None
    l4t: Fact | None = None
    jetpack: Fact | None = None
    wsl: Fact | None = None
    container: Fact | None = None
    shell: Fact | None = None  # of Windows, which has several: `cmd`, `powershell` or `posix`


class Gpu(Struct, frozen=True, kw_only=True):
    name: str
    capability: Capability | None
    found_via: str
    memory: int | None = None


class Driver(Struct, frozen=True, kw_only=True):
    """What there is of a driver. In a container the kernel's half can be visible without the user's half."""

    nvml: NvmlState
    found_via: str
    version: str | None = None
    kernel_version: str | None = None
    cuda: str | None = None
    libcuda: str | None = None
    device_nodes: tuple[str, ...] = ()
    pci_devices: tuple[str, ...] = ()


class Toolkit(Struct, frozen=True, kw_only=True):
    """`nvcc` is None where there is none: the index's CUDA 12 packages hold only parts."""

    version: str
    root: str
    found_via: tuple[str, ...]
    nvcc: str | None = None


class Compiler(Struct, frozen=True, kw_only=True):
    kind: CompilerKind
    version: str
    path: str
    found_via: tuple[str, ...]


class VisualStudio(Struct, frozen=True, kw_only=True):
    """An installation of it. `cuda`: the toolkits that are integrated with its projects."""

    name: str
    version: str
    path: str
    found_via: str
    cuda: tuple[str, ...] = ()


class Tool(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    path: str


class Python(Struct, frozen=True, kw_only=True):
    """`free_threaded`: it was built without the GIL, and takes other wheels."""

    version: str
    prefix: str
    found_via: str
    free_threaded: bool = False


class Framework(Struct, frozen=True, kw_only=True):
    """A package that carries CUDA code. `cuda` is what it was built for (a major if no more is known).

    `libraries` lists, for packages with one library a CUDA version, the versions that are there.
    """

    name: str
    version: str
    found_via: str
    cuda: str | None = None
    libraries: tuple[str, ...] = ()


class Package(Struct, frozen=True, kw_only=True):
    name: str
    version: str


class Variable(Struct, frozen=True, kw_only=True):
    name: str
    value: str
    found_via: str


class LibraryFolder(Struct, frozen=True, kw_only=True):
    """A folder the loader searches, with the CUDA libraries in it."""

    path: str
    found_via: str
    libraries: tuple[str, ...] = ()


class Attempt(Struct, frozen=True, kw_only=True):
    """One step of a search, successful or not: what was looked for, where, and what came of it."""

    fact: str
    tried: str
    outcome: str


class MachineProfile(Struct, frozen=True, kw_only=True):
    schema: Literal["cuwheel.machine/1"] = SCHEMA
    system: System
    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    toolkits: tuple[Toolkit, ...] = ()
    compilers: tuple[Compiler, ...] = ()
    visual_studios: tuple[VisualStudio, ...] = ()
    tools: tuple[Tool, ...] = ()
    python: Python | None = None
    frameworks: tuple[Framework, ...] = ()
    packages: tuple[Package, ...] = ()
    variables: tuple[Variable, ...] = ()
    library_folders: tuple[LibraryFolder, ...] = ()
    trail: tuple[Attempt, ...] = ()

    def variable(self, name: str) -> Variable | None:
        return next((each for each in self.variables if each.name == name), None)

    def framework(self, name: str) -> Framework | None:
        return next((each for each in self.frameworks if each.name == name), None)

    def tool(self, name: str) -> Tool | None:
        return next((each for each in self.tools if each.name == name), None)


def save(profile: MachineProfile, path: Path) -> None:
    text = codec.indented(profile, 2)
    files.write(path, text)


def load(path: Path) -> MachineProfile:
    return decode(files.read_limited(path, _MAX_BYTES, "a machine profile", hint=_HINT), str(path))


def decode(text: bytes, name: str) -> MachineProfile:
    try:
        data = codec.decode(text)
        # Before its fields: of a newer schema one can say nothing but that it is newer.
        schema = data.get("schema") if isinstance(data, dict) else None
        if not isinstance(schema, str) or not schema.startswith(_SCHEMA_NAME + "/"):
            raise MalformedError(name, f"is not a machine profile (its schema is {schema!r})", _HINT)
        refuse_newer(data, SCHEMA, name)
        return codec.convert(each_string(data, printable.line), MachineProfile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(name, f"is not a machine profile: {error}", _HINT) from error
