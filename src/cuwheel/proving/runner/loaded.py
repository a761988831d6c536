"""What the processes of a check loaded on the GPU, by the library that `cuwheel trace` preloads.

A row for each library: its path below the environment (else its name alone), the offsets of device code in its file,
how many images it made in memory, the kernels that were launched, and of how many pieces the driver compiled PTX, for
how long (what it takes from its cache it does not compile).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_LONGEST_LINE, _MOST_EVENTS, _MOST_FILES = 1 << 18, 1_000_000, 1000
_MOST_OFFSETS, _MOST_KERNELS = 10_000, 200
_TRIAL_S = 20
_NS_A_MS = 1_000_000


def loads_here(library: str) -> bool:
    """A loader that cannot take it says so, and goes on without it: checks must not print that."""
    command = ["/bin/sh", "-c", ":"]
    try:
        done = subprocess.run(command, env={"LD_PRELOAD": library}, capture_output=True, timeout=_TRIAL_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and not done.stderr


def tracing_variables(library: str, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What makes programs write into `folder`; the driver begins with an empty cache, as in a new container."""
    folder.mkdir(parents=True, exist_ok=True)
    before = environ.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else library,
        "CUWHEEL_TRACE": str(folder),
        "CUDA_CACHE_PATH": str(folder / "driver-cache"),
    }


def read_loaded(folder: Path, root: str) -> list[dict[str, Any]]:
    """`root`: the environment, below which paths are told."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("trace-*.jsonl"))[:_MOST_FILES]:
        _process(path, os.path.realpath(root), found)
    return _rows(found)


def merge_loaded(checks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What several checks loaded, as one."""
    found: dict[str, dict[str, Any]] = {}
    for check in checks:
        for row in check.get("loaded", ()):
            into = _row(found, row["library"])
            into["offsets"].update(row["offsets"])
            into["kernels"].update(dict.fromkeys(row["kernels"]))
            into["images"] += row["images"]
            measured = row.get("compiled") is not None and into["compiled"] is not None  # older proofs do not tell
            into["compiled"] = into["compiled"] + row["compiled"] if measured else None
            into["compile_ms"] += row.get("compile_ms") or 0.0
    return _rows(found)


def _rows(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "library": name,
            "offsets": sorted(row["offsets"])[:_MOST_OFFSETS],
            "images": row["images"],
            "kernels": list(row["kernels"])[:_MOST_KERNELS],
            "compiled": row["compiled"],
            "compile_ms": None if row["compiled"] is None else round(row["compile_ms"], 3),
        }
        for name, row in sorted(found.items())
    ]


def _row(found: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return found.setdefault(name, {"offsets": set(), "images": 0, "kernels": {}, "compiled": 0, "compile_ms": 0.0})


def _process(path: Path, root: str, found: dict[str, dict[str, Any]]) -> None:
    modules: dict[str, str] = {}  # handle of a library or module → the file it is of
    kernels: dict[str, tuple[str, str]] = {}
    loads: dict[str, int] = {}  # any handle → which load it came from
    compiled: set[tuple[str, int]] = set()
    for number, event in enumerate(_events(path)):
        kind, handle = event.get("event"), str(event.get("handle") or "")
        name = ""
        if kind == "load":
            name = _name(event, root)
            row = _row(found, name)
            if isinstance(event.get("offset"), int):
                row["offsets"].add(event["offset"])
            else:
                row["images"] += 1
            modules[handle] = name
            loads[handle] = number
        elif kind == "handle":
            of = str(event.get("of") or "")
            name = modules.get(of) or kernels.get(of, ("",))[0]
            loads[handle] = loads.get(of, number)
            if of in kernels:
                kernels[handle] = kernels[of]
            elif of in modules and event.get("api") == "cuLibraryGetModule":
                modules[handle] = modules[of]
            elif of in modules:
                kernels[handle] = modules[of], _text(event.get("name"))
        elif kind == "launch" and str(event.get("kernel")) in kernels:
            library, kernel = kernels[str(event["kernel"])]
            _row(found, library)["kernels"][kernel] = None
        if name and isinstance(event.get("jit"), int):  # while it was loaded, or lazily later
            row = _row(found, name)
            row["compile_ms"] += event["jit"] / _NS_A_MS
            row["compiled"] += (name, loads[handle]) not in compiled
            compiled.add((name, loads[handle]))


def _name(event: Mapping[str, Any], root: str) -> str:
    """The file it stands in; of an image in memory, that which handed it over."""
    path = _text(event.get("file") or event.get("path") or event.get("caller"))
    inside = os.path.relpath(path, root) if path.startswith(root + os.sep) else Path(path).name
    parts = Path(inside).parts
    return "/".join(parts[parts.index("site-packages") + 1 :]) if "site-packages" in parts else inside


def _text(written: Any) -> str:  # noqa: ANN401 - of JSON
    """The library writes bytes beyond ASCII as code points of the same number."""
    text = written if isinstance(written, str) else ""
    try:
        return text.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b"")):
                if number >= _MOST_EVENTS:
                    return
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict):
                    yield event
    except OSError:
        return


def loaded_in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was loaded in words, a line for each library."""
    return [
        f"{row['library']}: {len(row['offsets'])} pieces, {len(row['kernels'])} kernels launched"
        + (f", {row['images']} made in memory" if row["images"] else "")
        for row in rows
    ]


def compiling_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much the driver had to compile for all that was loaded; nothing where nothing was seen on a GPU."""
    if not rows:
        return ""
    if any(row.get("compiled") is None for row in rows):
        return "unknown: it was not measured"
    pieces = sum(row["compiled"] for row in rows)
    seconds = sum(row["compile_ms"] for row in rows) / 1000
    return f"{pieces} piece{'s' * (pieces > 1)} of PTX, {seconds:.1f} s" if pieces else "nothing"
