"""pip's configuration: its files and its variables, in pip's own order."""

from __future__ import annotations

import configparser
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.network.tool_settings import (
    ToolSettings,
    home,
    index,
    is_true,
    seconds,
    system_folders,
    unique,
    user_folder,
)
from cuwheel.support import log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = "pip.ini" if os.name == "nt" else "pip.conf"
_VARIABLE = "PIP_"
_SECTIONS = ("global", "download", "install")  # a command's own weighs more than what is said for all


def read(environ: Mapping[str, str]) -> ToolSettings:
    values = options(environ)
    main = values.get("index-url", "").strip()
    no_index = is_true(values.get("no-index", ""))
    named = [main, *values.get("extra-index-url", "").split()]
    proxy = values.get("proxy", "").strip()
    bundle = values.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    return ToolSettings(
        indexes=() if no_index else unique(index(each) for each in named if each),
        public=not main and not no_index,
        find_links=tuple(values.get("find-links", "").split()),
        no_index=no_index,
        certificates=(bundle.strip(),) if bundle else (),
        client_certificate=values.get("client-cert", "").strip(),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        proxies=(("http", proxy), ("https", proxy)) if proxy else (),
        keyring=values.get("keyring-provider", "auto").strip() != "disabled",
        timeout=seconds(values.get("timeout") or values.get("default-timeout")),
    )


def options(environ: Mapping[str, str]) -> dict[str, str]:
    """Every option that is set, by pip's name for it: files first, then variables."""
    sections: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}
    for path in _files(environ):
        for section, values in _parsed(path).items():
            sections[section] |= values
    variables = {_name(name[len(_VARIABLE) :]): value for name, value in environ.items() if name.startswith(_VARIABLE)}
    return {
        name: value
        for values in (*(sections[section] for section in _SECTIONS), variables)
        for name, value in values.items()
        if value.strip()
    }


def _name(written: str) -> str:
    return written.lower().replace("_", "-").removeprefix("--")


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The most important last. A file that is named replaces the user's; the null device all of them."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    yield from (folder / "pip" / _NAME for folder in system_folders(environ))
    if sys.platform == "darwin":
        yield Path("/Library/Application Support/pip", _NAME)
    yield Path("/etc", _NAME)
    if not (named and Path(named).exists()):
        yield home(environ) / "pip" / _NAME if os.name == "nt" else home(environ) / ".pip" / _NAME
        if sys.platform == "darwin":
            yield home(environ) / "Library/Application Support/pip" / _NAME
        yield user_folder(environ) / "pip" / _NAME
    yield from (prefix / _NAME for prefix in _prefixes(environ))
    if named:
        yield Path(named)


def _prefixes(environ: Mapping[str, str]) -> list[Path]:
    """Environments whose pip may be meant: each can have a configuration of its own."""
    found = [Path(environ[name]) for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if environ.get(name)]
    if program := shutil.which("pip", path=environ.get("PATH")):
        found.insert(0, Path(program).resolve().parent.parent)
    return list(dict.fromkeys([*found, Path(sys.prefix)]))


def _parsed(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        log.debug("%s is not read: %s", path, error)
        return {}
    return {
        section: {_name(name): value for name, value in parser.items(section)}
        for section in _SECTIONS
        if parser.has_section(section)
    }
