"""The environment variables that affect CUDA, where each is set, and the folders the loader searches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.facts.packages import is_cuda_library
from cuwheel.facts.spellings import table
from cuwheel.machine import toolkits
from cuwheel.machine.profile import LibraryFolder, Variable
from cuwheel.machine.system import library_folders
from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.machine.world import World

VARIABLE_NAMES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDAToolkit_ROOT",
    "CUDACXX",
    "CC",
    "CXX",
    "CUDAHOSTCXX",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CUDNN_PATH",
    "LD_LIBRARY_PATH",
    *table.VARIABLES,
    "BNB_CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_MODULE_LOADING",
    "MAX_JOBS",
)
_EXPORT = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_][A-Za-z0-9_]*)=([^\s;#]*)", re.MULTILINE)
# Where NVIDIA's packages put libraries, and torch those that it brings for Windows.
_PACKAGE_FOLDERS = ("nvidia/*/lib", "nvidia/*/bin", "nvidia/*/bin/x86_64", "torch/lib")


def probe_variables(world: World, prefix: Path | None = None) -> tuple[Variable, ...]:
    """The process's own win over a project's, as cargo has it, unless the project forces its own.

    `prefix`: the environment that was asked for; what activating it sets wins over both.
    """
    found = {
        name: Variable(name=name, value=value, found_via="environment")
        for name in (*VARIABLE_NAMES, *toolkits.versioned_variables(world))
        if (value := world.environ.get(name)) is not None
    }
    for variable, forced in cargo_variables(world):
        if variable.name in VARIABLE_NAMES and (forced or variable.name not in found):
            found[variable.name] = variable
    found |= {each.name: each for each in environment_variables(world, prefix)} if prefix else {}
    known = [found[name] for name in VARIABLE_NAMES if name in found]
    return (*known, *(each for name, each in found.items() if name not in VARIABLE_NAMES))


def environment_variables(world: World, prefix: Path) -> tuple[Variable, ...]:
    """What activating an environment sets: conda's own list and scripts, and what was written into `activate`."""
    found: dict[str, Variable] = {}
    scripts = [prefix / "bin" / "activate", *sorted((prefix / "etc/conda/activate.d").glob("*.sh"))]
    for script in scripts:
        for match in _EXPORT.finditer(world.text(world.shown(script)) or ""):
            found[match[1]] = Variable(name=match[1], value=match[2].strip("\"'"), found_via=world.shown(script))
    state = prefix / "conda-meta" / "state"
    try:
        state_file = codec.decode(world.text(world.shown(state)) or "{}")
    except msgspec.DecodeError:
        state_file = {}
    listed = state_file.get("env_vars") if isinstance(state_file, dict) else None
    for name, value in listed.items() if isinstance(listed, dict) else ():
        if isinstance(value, str):
            found[name] = Variable(name=name, value=value, found_via=world.shown(state))
    return tuple(found[name] for name in VARIABLE_NAMES if name in found)


def cargo_variables(world: World) -> Iterator[tuple[Variable, bool]]:
    """`[env]` of .cargo/config.toml here and above, then cargo's own, the nearest winning; and whether it is forced."""
    seen: set[str] = set()
    for home in _cargo_homes(world):
        for name in ("config.toml", "config"):
            for key, entry in _cargo_env(world, home / name).items():
                value, forced = _cargo_value(entry, home.parent)
                if key not in seen and value is not None:
                    seen.add(key)
                    yield Variable(name=key, value=value, found_via=world.shown(home / name)), forced


def _cargo_homes(world: World) -> Iterator[Path]:
    yield from (folder / ".cargo" for folder in (world.cwd, *world.cwd.parents))
    home = world.environ.get("HOME") or world.environ.get("USERPROFILE")
    if own := world.environ.get("CARGO_HOME") or (f"{home}/.cargo" if home else ""):
        yield world.path(own)


def _cargo_env(world: World, where: Path) -> dict[str, Any]:
    if not where.is_file():
        return {}
    try:
        env = codec.read_toml(where).get("env", {})
    except (OSError, msgspec.DecodeError) as error:
        world.note("variables", world.shown(where), f"cannot be read: {error}")
        return {}
    return env if isinstance(env, dict) else {}


def _cargo_value(entry: object, folder: Path) -> tuple[str | None, bool]:
    if isinstance(entry, str):
        return entry, False
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), str):
        return None, False
    value = entry["value"]
    return str(folder / value) if entry.get("relative") is True else value, entry.get("force") is True


def probe_library_folders(world: World, site_packages: Sequence[Path]) -> tuple[LibraryFolder, ...]:
    """In the loader's order: LD_LIBRARY_PATH before what the environment's packages bring, the system last.

    On Windows packages add their own folders, then comes the system's, then PATH.
    """
    on_windows = world.platform == "win32"
    folders = (
        [] if on_windows else [(each, "LD_LIBRARY_PATH") for each in map(world.path, world.entries("LD_LIBRARY_PATH"))]
    )
    for packages in site_packages:
        for pattern in _PACKAGE_FOLDERS:
            folders += [(folder, "site-packages") for folder in sorted(packages.glob(pattern))]
    found = [
        LibraryFolder(path=world.shown(folder), libraries=_cuda_libraries(folder), found_via=found_via)
        for folder, found_via in folders
    ]
    return (*found, *_system_folders(world))


def _system_folders(world: World) -> Iterator[LibraryFolder]:
    """Those of the system, and of conda, that hold CUDA's libraries; links to one folder are one."""
    prefix = world.environ.get("CONDA_PREFIX")
    on_windows = world.platform == "win32"
    places = [(f"{prefix}/{'Library/bin' if on_windows else 'lib'}", "conda")] if prefix else []
    places += [(each, "system") for each in library_folders(world)]
    places += [(each, "PATH") for each in world.entries("PATH")] if on_windows else []
    seen: set[Path] = set()
    for place, found_via in places:
        folder = world.path(place)
        names = _cuda_libraries(folder) if folder.resolve() not in seen else ()
        seen.add(folder.resolve())
        if names:
            yield LibraryFolder(path=world.shown(folder), libraries=names, found_via=found_via)


def _cuda_libraries(folder: Path) -> tuple[str, ...]:
    """By soname: development links and full versions of the same library are one."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if is_cuda_library(name))
