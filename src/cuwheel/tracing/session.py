"""A command run as it is, with the library that sees what its programs load."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cuwheel.errors import ToolError, ToolTimeoutError, UsageError
from cuwheel.support import files, own_c, process, system_calls
from cuwheel_core.errors import UnreadableError
from cuwheel_core.wheel import metadata

# The library that traced programs load: the one that ships, or where that does not fit this system, compiled here.

SOURCES = Path(__file__).parent / "preload"
OPTIONS = ("-std=gnu11", "-O2", "-w", "-shared", "-fPIC", "-fvisibility=hidden")
_LIBRARY_NAME = "trace.so"
_TRIAL_S = 20


def shipped() -> dict[str, Path]:
    """One for each processor, by its name."""
    return own_c.prebuilt(SOURCES / own_c.PREBUILT, own_c.source_digest(SOURCES))


def preload_path(environ: Mapping[str, str]) -> Path:
    """One that this machine's programs load without a word."""
    if not sys.platform.startswith("linux"):
        hint = "wsl cuwheel trace -- COMMAND   (under WSL2, with the driver of Windows)" if os.name == "nt" else ""
        raise UsageError("programs can be traced on Linux only", hint=hint)
    place = own_c.home(files.cache_folder()) / "trace" / own_c.digest(SOURCES)
    made = place / _LIBRARY_NAME
    if made.is_file():
        return made
    ready_made = shipped().get(f"trace-{platform.machine()}.so")
    with files.errors_of(place, "choose another folder with CUWHEEL_CACHE"):
        place.mkdir(parents=True, exist_ok=True)
        if ready_made and _loads_silently(ready_made):
            return files.copy(ready_made, made)
        with tempfile.TemporaryDirectory(dir=place, prefix=".") as name:
            trial = Path(name, _LIBRARY_NAME)
            for compiler in own_c.compilers(environ):
                command: list[str | Path] = [compiler, *OPTIONS, SOURCES / "trace.c", "-o", trial, "-ldl", "-lpthread"]
                if own_c.compiled(command, environ) and _loads_silently(trial):
                    system_calls.rename_over(trial, made)
                    return made
    raise ToolError(
        ["cc"], "cannot make a library that this machine's programs load", hint="install a C compiler: apt install gcc"
    )


def _loads_silently(library: Path) -> bool:
    """A loader that cannot take it says so on stderr, and goes on without it."""
    try:
        done = process.run(["/bin/sh", "-c", ":"], timeout=_TRIAL_S, check=False, env={"LD_PRELOAD": str(library)})
    except (ToolError, ToolTimeoutError, UnreadableError):
        return False
    return done.status == 0 and not done.stderr


VARIABLE = "CUWHEEL_TRACE"
_IN_PACKAGES = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")
_IN_TOOLKITS = ("extras/CUPTI/lib64", "lib64")
_CUPTI, _INJECTION = "CUWHEEL_CUPTI", "CUDA_INJECTION64_PATH"


@contextlib.contextmanager
def trace_folder(keep: Path | None) -> Iterator[Path]:
    """Where the processes write: for this user alone, as their names of files may be nobody else's business."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-trace-") as name:
            yield Path(name)
        return
    with files.errors_of(keep, "choose a writable folder with --keep"):
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(f"{keep} is not empty, and traces are never overwritten", hint="choose another folder")
    yield files.absolute(keep)


def environ_for(place: Path, environ: Mapping[str, str], cupti: Path | None = None) -> dict[str, str]:
    """What makes programs load the library. A command that clears its environment is traced no further."""
    library = preload_path(environ)
    before = environ.get("LD_PRELOAD")
    made = {**environ, VARIABLE: str(place), "LD_PRELOAD": f"{library}:{before}" if before else str(library)}
    return {**made, _INJECTION: str(library), _CUPTI: str(cupti)} if cupti else made


def find_cupti(command: Sequence[str], environ: Mapping[str, str]) -> Path:
    """CUPTI's library: of the packages of the command's Python or of the active environment, else a toolkit's."""
    program = shutil.which(command[0], path=environ.get("PATH", os.defpath)) if command else None
    prefixes = [Path(program).parent.parent] if program else []
    prefixes += [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    sites = [site for prefix in prefixes for site in metadata.site_packages(prefix)]
    roots = [Path(environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    folders = [site / each for site in sites for each in _IN_PACKAGES]
    folders += [root / each for root in (*roots, Path("/usr/local/cuda")) for each in _IN_TOOLKITS]
    for place in folders:
        if found := sorted(place.glob("libcupti.so.[0-9]*"), key=lambda path: len(path.name)):
            return found[0]
    raise ToolError(
        ["libcupti.so"],
        "CUPTI was not found in the command's environment, nor in a toolkit",
        hint="pip install nvidia-cuda-cupti, or name the library: --cupti /path/libcupti.so.13",
    )


def run_traced(
    command: Sequence[str],
    place: Path,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cupti: Path | bool = False,
) -> int:
    """Its status, negative for a signal. `cupti`: the library, or True for the one that is found."""
    if not place.is_dir():
        raise UnreadableError(place, "is not a folder")
    caller = dict(os.environ if environ is None else environ)
    library = find_cupti(command, caller) if cupti is True else cupti or None
    variables = environ_for(place, caller, library)
    return process.attend(command, env=variables, cwd=files.absolute(cwd or Path.cwd()))
