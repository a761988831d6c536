"""The Python environment: its frameworks with the CUDA each was built for, read from files, never imported."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cuwheel.facts import packages
from cuwheel.machine.profile import Framework, Package, Python, Variable
from cuwheel.machine.world import World
from cuwheel.support import codec
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import opening
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.wheel import metadata

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey, TorchExports


_ASSIGNED = r"^\s*{}\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]"
_TORCH_CUDA = lazy_pattern(_ASSIGNED.format("cuda"), re.MULTILINE)
_TENSORFLOW_CUDA = lazy_pattern(r"['\"]cuda_version['\"]\s*[:,]\s*['\"]([\d.]+)['\"]")
_CUDA_MAJOR_IN_NAME = lazy_pattern(r"cuda-?(\d+)")
_BITSANDBYTES_LIBRARY = lazy_pattern(r"libbitsandbytes_cuda(\d{2})(\d+)(?:_nocublaslt)?\.(?:so|dll)")
_JAX_PLUGINS = lazy_pattern(r"jax-cuda(\d+)-(?:plugin|pjrt)")
_EXPORT = lazy_pattern(r"^[ \t]*export[ \t]+([A-Za-z_][A-Za-z0-9_]*)=([^\s;#]*)", re.MULTILINE)
_FOLDER = lazy_pattern(r"python(3\.\d+)(t?)", re.ASCII)
_LOCAL_CUDA = lazy_pattern(r"\+cuda(\d+)")


def locate(world: World, env: Path | None) -> tuple[Python, tuple[Path, ...]]:
    """The environment asked for, else the active one, else the one cuwheel runs in; and its package folders."""
    if env is not None:
        prefix, found_via = env, "--env"
    elif active := world.environ.get("VIRTUAL_ENV"):
        prefix, found_via = world.path(active), "VIRTUAL_ENV"
    elif active := world.environ.get("CONDA_PREFIX"):
        prefix, found_via = world.path(active), "CONDA_PREFIX"
    else:
        prefix, found_via = Path(sys.prefix), "the interpreter that runs cuwheel"
    folders = metadata.site_packages(prefix)
    if env is not None and not folders:
        raise UnreadableError(
            env,
            "is not a Python environment (no site-packages in it)",
            hint="give the folder that holds bin/ and lib/",
        )
    version, free = _version(prefix, folders), _is_free_threaded(prefix, folders)
    return Python(version=version, prefix=world.shown(prefix), found_via=found_via, free_threaded=free), folders


def probe_environment(
    env: Path, world: World | None = None
) -> tuple[Python, tuple[Framework, ...], tuple[Variable, ...]]:
    """The packages of an environment, and what activating it sets of the variables that choose what they load."""
    world = world or World.here()
    python, site_packages = locate(world, env)
    frameworks, _ = probe_frameworks(site_packages)
    return python, frameworks, activation_variables(world, env, sorted(packages.choosing_variables()))


def activation_variables(world: World, prefix: Path, names: Iterable[str]) -> tuple[Variable, ...]:
    """Those of `names` that activating an environment sets: by conda's list and scripts, or its `activate`."""
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
    return tuple(found[name] for name in names if name in found)


def probe_frameworks(
    site_packages: Sequence[Path],
) -> tuple[tuple[Framework, ...], tuple[Package, ...]]:
    """In the order of FRAMEWORKS; the packages are NVIDIA's."""
    frameworks: dict[str, Framework] = {}
    packages: dict[str, Package] = {}
    for folder in site_packages:
        there = {each.name: each.version for each in metadata.distributions(folder)}
        for look in FRAMEWORKS:
            if (found := look(folder, there)) and found.name not in frameworks:
                frameworks[found.name] = found
        for name, version in there.items():
            if name.startswith("nvidia-"):
                packages.setdefault(name, Package(name=name, version=version))
    return tuple(frameworks.values()), tuple(packages[name] for name in sorted(packages))


def _version(prefix: Path, folders: Sequence[Path]) -> str:
    if prefix == Path(sys.prefix):
        return ".".join(map(str, sys.version_info[:3]))
    config = opening.head(prefix / "pyvenv.cfg")
    if match := re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", config, re.MULTILINE):
        return match[1]
    named = (_FOLDER.fullmatch(folder.parent.name) for folder in folders)
    return next((match[1] for match in named if match), "3")


def _is_free_threaded(prefix: Path, folders: Sequence[Path]) -> bool:
    """Such a Python has folders of its own: lib/python3.13t."""
    if prefix == Path(sys.prefix):
        return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    named = [match for folder in folders if (match := _FOLDER.fullmatch(folder.parent.name))]
    return bool(named) and all(match[2] for match in named)


def _torch(folder: Path, installed: Mapping[str, str]) -> Framework | None:
    text = opening.head(folder / "torch" / "version.py")
    match = re.search(_ASSIGNED.format("__version__"), text, re.MULTILINE)
    version = match[1] if match else installed.get("torch")
    if version is None or not (folder / "torch").is_dir():
        return None
    cuda = _TORCH_CUDA.search(text)
    return Framework(name="torch", version=version, cuda=cuda[1] if cuda else None, found_via="torch/version.py")


def _jax(folder: Path, installed: Mapping[str, str]) -> Framework | None:  # noqa: ARG001 - one signature
    version = installed.get("jax") or installed.get("jaxlib")
    if version is None:
        return None
    for name in installed:
        if match := _JAX_PLUGINS.fullmatch(name):
            return Framework(name="jax", version=version, cuda=match[1], found_via=f"the package {name}")
    old = _LOCAL_CUDA.search(installed.get("jaxlib", ""))
    return Framework(name="jax", version=version, cuda=old[1] if old else None, found_via="jaxlib's version")


def _cupy(folder: Path, installed: Mapping[str, str]) -> Framework | None:  # noqa: ARG001
    for name, version in installed.items():
        if name == "cupy" or name.startswith("cupy-cuda"):
            major = _CUDA_MAJOR_IN_NAME.search(name)
            cuda = (major[1] if len(major[1]) <= 2 else f"{major[1][:2]}.{major[1][2:]}") if major else None  # noqa: PLR2004
            return Framework(name="cupy", version=version, cuda=cuda, found_via=f"the package {name}")
    return None


def _tensorflow(folder: Path, installed: Mapping[str, str]) -> Framework | None:
    version = installed.get("tensorflow") or installed.get("tensorflow-cpu")
    if version is None:
        return None
    where = "tensorflow/python/platform/build_info.py"
    cuda = _TENSORFLOW_CUDA.search(opening.head(folder / where))
    return Framework(name="tensorflow", version=version, cuda=cuda[1] if cuda else None, found_via=where)


def _bitsandbytes(folder: Path, installed: Mapping[str, str]) -> Framework | None:
    version = installed.get("bitsandbytes")
    if version is None:
        return None
    names = (path.name for path in sorted((folder / "bitsandbytes").glob("libbitsandbytes_cuda*")))
    matches = (_BITSANDBYTES_LIBRARY.fullmatch(name) for name in names)
    libraries = tuple(dict.fromkeys(f"{match[1]}.{match[2]}" for match in matches if match))
    return Framework(
        name="bitsandbytes",
        version=version,
        libraries=libraries,
        found_via="bitsandbytes/libbitsandbytes_cuda*",
    )


FRAMEWORKS: tuple[Callable[[Path, Mapping[str, str]], Framework | None], ...] = (
    _torch,
    _jax,
    _cupy,
    _tensorflow,
    _bitsandbytes,
)


# The torch in a Python environment: its version, and its symbols for the extensions that are to use it.


def symbols_of_torch(surveys: Iterable[Survey]) -> frozenset[str]:
    """What targets need of torch."""
    return frozenset(name for survey in surveys for name in survey.torch_symbols)


def torch_exports(env: Path | None, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols the environment's torch has; None where it has no torch, or nothing is wanted."""
    found = _find_torch(env) if wanted else None
    if found is None:
        return None
    from cuwheel.device_code import torch_symbols  # noqa: PLC0415 - few libraries need symbols of torch

    return torch_symbols.exported(found[0] / "torch", found[1], wanted)


def torch_version(env: Path | None) -> str | None:
    """The version of the environment's torch; None where it has none."""
    found = _find_torch(env)
    return found[1] if found else None


def _find_torch(env: Path | None) -> tuple[Path, str] | None:
    """The folder that the environment's torch is in, and its version."""
    _, folders = locate(World.here(), env)
    for folder in folders:
        frameworks, _ = probe_frameworks([folder])
        for torch in frameworks:
            if torch.name == "torch":
                return folder, torch.version
    return None
