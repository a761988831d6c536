"""What a source says of itself, and how it is built: read, never run."""

from __future__ import annotations

import ast
import configparser
import re
import warnings
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.building.values import Project
from cuwheel.errors import MalformedError
from cuwheel.support import codec, files
from cuwheel.wheel import metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.wheel.metadata import Distribution

_MAX_BYTES = 4 * 1024 * 1024
_CODE = (".cu", ".cuh", ".ptx", ".cubin", ".fatbin")
_MENTIONS = re.compile(r"\bcuda|nvcc|CUDA\w*Extension|find_package\(\s*CUDA", re.IGNORECASE)
_BUILD_FILES = ("CMakeLists.txt", "setup.py", "setup.cfg", "pyproject.toml", "build.rs", "Cargo.toml", "meson.build")
_BUILD_SUFFIXES = (".cmake", ".mk", "Makefile", ".bazel", ".py", ".rs")
_TORCH = re.compile(r"CUDAExtension|torch\.utils\.cpp_extension")
_LEGACY = "setuptools.build_meta:__legacy__"


def read(folder: Path, files: Sequence[str], asked: str = "auto") -> Project:
    """`asked`: the backend that the configuration names."""
    data = _toml(folder / "pyproject.toml")
    system, project = _table(data, "build-system"), _table(data, "project")
    top = {name for name in files if "/" not in name}
    if not top & {"pyproject.toml", "setup.py"}:
        raise MalformedError(
            folder,
            "is not a Python project: it has neither pyproject.toml nor setup.py",
            hint="name the folder that has them: cuwheel build FOLDER",
        )
    build_backend = str(system.get("build-backend") or _LEGACY)
    packed = _packed(folder)
    backend, evidence = _backend(folder, top, files, build_backend) if asked == "auto" else (asked, "configuration")
    return Project(
        name=_text(project, "name") or packed.name or _legacy_name(folder) or _from_folder(folder),
        version=_text(project, "version") or packed.version,
        requires_python=_text(project, "requires-python"),
        backend=backend,
        build_backend=build_backend,
        requires=tuple(each for each in _list(system, "requires") if isinstance(each, str)),
        build_dir=backend == "scikit-build-core" and "build-dir" not in _table(_table(data, "tool"), "scikit-build"),
        evidence=evidence,
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return codec.parse_toml(_read(path).encode())
    except msgspec.DecodeError as error:
        raise MalformedError(path, f"is not valid TOML: {error}") from error


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _list(table: dict[str, Any], name: str) -> list[Any]:
    value = table.get(name)
    return value if isinstance(value, list) else []


def _text(table: dict[str, Any], name: str) -> str:
    value = table.get(name, "")
    return value if isinstance(value, str) else ""


def _read(path: Path) -> str:
    return files.head(path, _MAX_BYTES)


def _packed(folder: Path) -> Distribution:
    """What the PKG-INFO of a source release says."""
    return metadata.from_texts(_read(folder / "PKG-INFO"), "")


def _from_folder(folder: Path) -> str:
    return re.sub(r"-\d.*", "", folder.resolve().name)


def _legacy_name(folder: Path) -> str:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_read(folder / "setup.cfg"))
    except configparser.Error:
        return ""
    if name := parser.get("metadata", "name", fallback=""):
        return name.strip()
    return _name_in_setup(_read(folder / "setup.py"))


def _name_in_setup(text: str) -> str:
    """`setup(name="foo")`, and `NAME = "foo"; setup(name=NAME)`: a text, or a variable at the top that is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    assigned = [each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    known = {target.id: each.value for each in assigned for target in each.targets if isinstance(target, ast.Name)}
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("setup")]
    for word in (each for call in calls for each in call.keywords if each.arg == "name"):
        value = known.get(word.value.id) if isinstance(word.value, ast.Name) else word.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ""


def _backend(folder: Path, top: set[str], files: Sequence[str], build_backend: str) -> tuple[str, str]:
    """How it is built, and what tells so. The first that fits."""
    module = build_backend.partition(":")[0]
    if module.startswith("scikit_build_core"):
        return "scikit-build-core", f"build-backend is {build_backend}"
    if module.startswith(("maturin", "setuptools_rust")):
        return "cargo", f"build-backend is {build_backend}"
    setup = _read(folder / "setup.py")
    if _TORCH.search(setup):
        return "torch", "setup.py uses torch.utils.cpp_extension"
    if "Cargo.toml" in top and (re.search(r"\bcargo\b|setuptools_rust", setup) or not setup):
        return "cargo", "it has a Cargo.toml at the top"
    if re.search(r"\bcmake\b", setup, re.IGNORECASE) or "CMakeLists.txt" in top:
        return "cmake", "it has a CMakeLists.txt" if "CMakeLists.txt" in top else "setup.py runs cmake"
    if re.search(r"\bcargo\b", setup) and any(name.endswith("Cargo.toml") for name in files):
        return "cargo", "setup.py runs cargo"
    if module.startswith("setuptools"):
        return "setuptools", f"build-backend is {build_backend}"
    return "other", f"build-backend is {build_backend}"


def has_cuda(folder: Path, files: Sequence[str]) -> bool:
    """Whether there is anything that could become device code: sources, or a build file that speaks of CUDA."""
    if any(name.endswith(_CODE) for name in files):
        return True
    likely = [name for name in files if name.rpartition("/")[2] in _BUILD_FILES or name.endswith(_BUILD_SUFFIXES)]
    return any(_MENTIONS.search(_read(folder / name)) for name in likely[:2000] if not _is_ours(name))


def _is_ours(name: str) -> bool:
    """cuwheel's own configuration speaks of CUDA whatever the project does."""
    return name in ("pyproject.toml", "cuwheel.toml")
