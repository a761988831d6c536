"""Rows for CUDA libraries that are newer than this cuwheel, from a file that somebody names."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cuwheel.errors import ConfigurationError
from cuwheel.support import codec
from cuwheel_core.errors import UnreadableError
from cuwheel_core.facts.rows.cuda_libraries import Package

VARIABLE = "CUWHEEL_LIBRARIES"
_AS_IN = "[[package]] rows with name, cuda, folder and sonames, as in cuwheel's own libraries.toml"


def rows_of_variable() -> tuple[Package, ...]:
    """Those of the file that CUWHEEL_LIBRARIES names; none without it."""
    named = os.environ.get(VARIABLE)
    if not named:
        return ()
    path = Path(named)
    try:
        data = codec.read_toml(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=f"{VARIABLE} names it") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [str(error)], hint=_AS_IN) from error
    problems = [f"unknown key '{key}'" for key in data if key != "package"]
    found = data.get("package")
    for row in found if isinstance(found, list) else ():
        if isinstance(row, dict):
            row.setdefault("source", [])
    made = codec.convert_or_list_problems(found, tuple[Package, ...], "package", problems)
    problems += [
        f"{row.name}: it must give its CUDA and its folder" for row in made or () if not (row.cuda and row.folder)
    ]
    if problems or made is None:
        raise ConfigurationError(path, problems, hint=_AS_IN)
    return made
