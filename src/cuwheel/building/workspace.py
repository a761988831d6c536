"""Where a job is built: its variables, nothing leaking in from the caller, and its folder, one build at a time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.building import crossing, tables
from cuwheel.building.values import BuildPlan, Built
from cuwheel.facts import spellings
from cuwheel.machine.system import Share
from cuwheel.network import settings, venvs
from cuwheel.support import codec, files, log, system_calls
from cuwheel.toolchains import store as store_
from cuwheel.toolchains import toolchain as toolchain_settings
from cuwheel.toolchains.toolchain import HostCompiler, Setting, Toolchain
from cuwheel.verdicts.planning.plan import Job as PlanJob
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support.patterns import matches_any

if TYPE_CHECKING:
    from cuwheel.facts.spellings.row import Spelling
    from cuwheel.toolchains.store import Store


# The variables of a build: everything that matters is set, and nothing else leaks in from the caller.

MARK = "CUWHEEL_BUILD"  # by which what a killed build left running is found
_WINDOWS = os.environ.get("SYSTEMROOT", "C:\\Windows")
SYSTEM_PATH = (
    (f"{_WINDOWS}\\System32", _WINDOWS, f"{_WINDOWS}\\System32\\Wbem")
    if os.name == "nt"
    else ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
)
# How to reach the network and the indexes: no part of what is built.
_PASSED = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"),
    *("PIP_*", "UV_*", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_HTTP_*", "CARGO_NET_*"),
    *("CARGO_REGISTRIES_*", "CARGO_REGISTRY_*", "CARGO_SOURCE_*", "USER", "LOGNAME", "SOURCE_DATE_EPOCH"),
    *system_calls.NEEDED_VARIABLES,
)
# pip and uv must not be led into environments of the caller, nor told where to put things; nobody publishes here.
_NEVER = (
    *settings.LEADING_ELSEWHERE,
    *("UV_PROJECT*", "UV_PUBLISH_*", "CARGO_REGISTRY_TOKEN", "CARGO_REGISTRY_CREDENTIAL_PROVIDER"),
)
# What lies in the user's home and is needed, when the build has a home of its own.
_AT_HOME = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "NETRC": ".netrc",
    "PIP_CONFIG_FILE": ".config/pip/pip.conf",
    "UV_CONFIG_FILE": ".config/uv/uv.toml",
}
_PARTS = {"cudnn": ("CUDNN_ROOT", "CUDNN_PATH", "CUDNN_HOME"), "nccl": ("NCCL_ROOT", "NCCL_HOME")}
_FIXED = {
    "FORCE_CUDA": "1",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "TZ": "UTC",
}


class VariableInputs(Struct, frozen=True, kw_only=True):
    """All that the variables of a job follow from."""

    plan: BuildPlan
    planned: PlanJob
    toolchain: Toolchain
    share: Share
    folder: Path  # the job's
    python: str
    caller: Mapping[str, str]
    path: tuple[str, ...] = SYSTEM_PATH  # of the system, or of a container's image


def job_settings(inputs: VariableInputs) -> tuple[Setting, ...]:
    """The variables of a job by name, each once."""
    merged = _base(inputs) | _architectures(inputs.planned, inputs.plan.project.backend)
    if inputs.plan.project.build_dir:  # a fixed one: what failed in a temporary folder cannot be run again
        merged["SKBUILD_BUILD_DIR"] = str(inputs.folder / "work")
    values = placeholders(inputs)
    for name, text in inputs.plan.table.environment.items():
        value = tables.fill_placeholders(text, values)
        # A person adds to CMake's arguments; the last of two definitions wins there.
        merged[name] = f"{merged[name]} {value}" if name == "CMAKE_ARGS" and merged.get(name) else value
    return tuple(Setting(name=name, value=merged[name]) for name in sorted(merged))


def _base(inputs: VariableInputs) -> dict[str, str]:
    folder, toolchain = inputs.folder, inputs.toolchain
    kept = {}
    for name, value in inputs.caller.items():
        asked = matches_any(name, inputs.plan.table.pass_through)
        usual = matches_any(name, _PASSED)
        if asked or (usual and not matches_any(name, _NEVER)):
            kept[name] = value
    made = kept | _FIXED
    if not toolchain.prefix:  # an image has no part in the user's home
        home = inputs.caller.get("HOME")
        places = {name: Path(home, place) for name, place in _AT_HOME.items()} if home else {}
        made = {name: str(place) for name, place in places.items() if place.exists()} | made
    made.setdefault("SOURCE_DATE_EPOCH", str(inputs.plan.tree.epoch))
    made |= {
        MARK: str(folder),
        **system_calls.home_variables(folder / "home", folder / "tmp"),
        "VIRTUAL_ENV": str(folder / "venv"),
        "CUDA_ROOT": toolchain.root,
        "CUDA_TOOLKIT_ROOT_DIR": toolchain.root,  # as FindCUDA and scripts of its time call it
        "MAX_JOBS": str(inputs.share.jobs),
        "NVCC_THREADS": str(inputs.share.threads),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(inputs.share.jobs),
        "CARGO_BUILD_JOBS": str(inputs.share.jobs),
    }
    made["PATH"] = os.pathsep.join((str(folder / "bin"), *inputs.path))
    made |= {
        name: toolchain.root for part, names in _PARTS.items() if part in toolchain.toolkit.components for name in names
    }
    if compiler := toolchain.host_compiler:
        made["CXX"] = compiler.path
        made |= {"CC": beside} if (beside := c_compiler(compiler.path)) else {}
    made = toolchain_settings.apply_settings(toolchain.settings, made) | dict(crossing.variables(toolchain, folder))
    made["PATH"] = f"{venvs.interpreter(folder / 'venv').parent}{os.pathsep}{made['PATH']}"
    return made


def without_leads(caller: Mapping[str, str]) -> dict[str, str]:
    """Variables for pip and uv themselves: all of the caller's but what would lead them elsewhere."""
    return {name: value for name, value in caller.items() if not matches_any(name, _NEVER)}


def passed_names(names: Iterable[str]) -> frozenset[str]:
    """Those of them that say how to reach the network and the indexes."""
    return frozenset(name for name in names if name != "SOURCE_DATE_EPOCH" and matches_any(name, _PASSED))


def c_compiler(cxx: str) -> str:
    """The C compiler beside a C++ one: `g++-12` → `gcc-12`; empty where none is known to be there."""
    path = Path(cxx)
    name = re.sub(r"g\+\+", "gcc", path.name) if "clang" not in path.name else path.name.replace("++", "")
    name = re.sub(r"c\+\+", "cc", name)
    plain = cxx == path.name  # found on the PATH of an image: it cannot be looked at
    return str(path.with_name(name)) if name != path.name and (plain or path.with_name(name).exists()) else ""


def _architectures(plan: PlanJob, backend: str) -> dict[str, str]:
    """The architecture list in every spelling that can say it.

    The build's own gets what comes nearest where it cannot say it: the gate sees what came of it.
    """
    made = {}
    for row in spellings.ROWS:
        spelt: Spelling = getattr(plan.spellings, row.name)
        value = spelt.exact_or_near if backend in row.backends else spelt.value
        if row.passed and value:
            variable, text = row.passed
            made[variable] = text.format(value)
    return made


def placeholders(inputs: VariableInputs) -> dict[str, str | None]:
    toolchain = inputs.toolchain
    made: dict[str, str | None] = {
        f"archs.{name}": getattr(inputs.planned.spellings, name).exact_or_near for name in spellings.NAMES
    }
    return made | {
        "cuda": inputs.planned.cuda,
        "cuda_digits": inputs.planned.cuda.replace(".", ""),
        "toolkit": toolchain.root,
        "nvcc": toolchain_settings.nvcc_of(toolchain.toolkit),
        "host_compiler": toolchain.host_compiler.path if toolchain.host_compiler else None,
        "python": inputs.python,
        "source": str(inputs.folder / "src" / inputs.plan.table.subdirectory),
        "jobs": str(inputs.share.jobs),
    }


def system_path(links: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """What a build finds beside its own folders. On Windows, without links, tools are there by folder."""
    tools = dict.fromkeys(str(Path(place).parent) for _, place in links) if os.name == "nt" else ()
    return (*SYSTEM_PATH, *tools)


def tool_links(path: str) -> Iterator[tuple[str, str]]:
    """Tools that a build may use, as the caller's PATH finds them outside the system's folders: name and place.

    Shims (of pyenv, asdf) ask their own configuration, which a build does not see: not where the system has the tool.
    """
    for name in _TOOLS:
        place = shutil.which(name, path=path)
        found = Path(place) if place else None
        if found is None or str(found.parent) in SYSTEM_PATH:
            continue
        if found.parent.name != "shims" or not any(Path(each, name).exists() for each in SYSTEM_PATH):
            yield name, str(found)


def compiler_links(compiler: HostCompiler | None) -> Iterator[tuple[str, str]]:
    """The chosen GCC under the names by which an nvcc that knows no NVCC_CCBIN looks for one."""
    if compiler is None or compiler.kind != "gcc":
        return
    usual = next((path for each in SYSTEM_PATH if (path := Path(each, "g++")).exists()), None)
    if usual and usual.resolve() == Path(compiler.path).resolve():
        return
    yield from ((name, compiler.path) for name in ("g++", "c++"))
    if beside := c_compiler(compiler.path):
        yield from ((name, beside) for name in ("gcc", "cc"))


# Linked one by one: a folder of the caller's PATH would bring its compilers too.
_TOOLS = (
    *("cargo", "rustc", "rustdoc", "rustup", "git", "make", "cmake", "ninja", "pkg-config", "patchelf"),
    *("ld.lld", "mold", "swig", "protoc", "m4", "bison", "flex"),
)


_KEPT_LOGS = 10
_WORK = ("src", "venv", "bin", "cross", "home", "tmp", "work", "out", "record", "refused")
_DONE = "done.json"
_END_S = 5.0


def job_folder(store: Store, *, name: str, cuda: str, archs: tuple[str, ...], python: str) -> Path:
    """The same job is always built at the same path: names of kernels depend on it."""
    parts = codec.encode([name.lower(), cuda, archs, python])
    return store.folder / "builds" / files.sha256_of(parts)[:16]


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """One build at a time; another waits. What a killed one left running is ended first.

    The lock is beside the folder: workers of a cluster may each have a folder of their own at the same path.
    """
    with store_.Store(folder.parent).locked(folder.name):
        if count := end_leftovers(folder):
            log.info("stopped %d processes left running by an earlier build", count)
        yield


def clean_folder(folder: Path) -> None:
    """Nothing of an earlier run but its logs and its result."""
    try:
        for name in _WORK:
            _remove(folder / name)
        for name in ("bin", "home", "tmp", "out", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for old in sorted((folder / "logs").glob("*.log"))[:-_KEPT_LOGS]:
            old.unlink()
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename or folder, hint=store_.NO_SPACE) from error


def _remove(path: Path) -> None:
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:  # a build may take the write bit from folders
        for each in (path, *path.rglob("*")):
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o755)
        shutil.rmtree(path)


def release_folder(folder: Path) -> None:
    """After success: the sources and the environment take space, and can be had again."""
    for name in ("src", "venv", "home", "tmp", "work", "out"):
        with contextlib.suppress(OSError):
            _remove(folder / name)


def new_log(folder: Path) -> Path:
    now = datetime.now(timezone.utc)
    return folder / "logs" / f"{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}.log"


def note_result(folder: Path, built: Built) -> None:
    """Written last: a build that was killed is none that can be resumed."""
    files.write(folder / _DONE, msgspec.json.format(codec.encode(built), indent=1), durable=True)


def forget_result(folder: Path) -> None:
    (folder / _DONE).unlink(missing_ok=True)


def earlier_result(folder: Path, key: str) -> Built | None:
    """What an earlier run made of the very same inputs, if it is still what it was."""
    built = codec.noted(folder / _DONE, Built)
    return built if built and built.key == key and files.holds(Path(built.wheel), built.sha256) else None


def end_leftovers(folder: Path) -> int:
    """Processes of a build here whose cuwheel was killed, or is ending; how many there were.

    Nobody else can be working in the folder: the caller holds its lock. Builds in namespaces of their own may have
    another folder at the same path.
    """
    wanted = f"{MARK}={folder}".encode()
    found = [pid for pid in _processes() if wanted in _variables_of_process(pid) and _sees(pid, folder)]
    count = len(found)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_S
    while found and time.monotonic() < deadline:
        found = [pid for pid in found if Path("/proc", str(pid), "exe").exists()]
        time.sleep(0.02)
    return count


def _sees(pid: int, folder: Path) -> bool:
    """Whether a process has the same folder at this path, or is in the same namespace where it has gone."""
    try:
        if folder.exists():
            return Path(f"/proc/{pid}/root{folder}").samefile(folder)
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def _processes() -> Iterator[int]:
    me = os.getpid()
    with contextlib.suppress(OSError):
        yield from (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and int(each.name) != me)


def _variables_of_process(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []
