"""uv's configuration: its files and its variables, in uv's own order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.network.addresses import Login
from cuwheel.network.tool_settings import (
    Index,
    ToolSettings,
    index,
    is_true,
    seconds,
    system_folders,
    unique,
    user_folder,
)
from cuwheel.support import decode, log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMEOUTS = ("UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT")  # in uv's order
_NAMED = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)=)?(?P<url>\S+)")


def read(environ: Mapping[str, str], cwd: Path) -> ToolSettings:
    tables = [table for found in _files(environ, cwd) for table in (_table(found, "pip"), found)]
    named = [*_from_variables(environ), *(each for table in tables for each in _from_table(table, environ))]
    default = next((each for each, is_default in named if is_default), None)
    no_index = any(table.get("no-index") is True for table in tables)
    return ToolSettings(
        indexes=() if no_index else unique(each for each, is_default in named if not is_default or each is default),
        public=default is None and not no_index,
        find_links=(*_words(environ.get("UV_FIND_LINKS", "").replace(",", " ")), *_texts(tables, "find-links")),
        no_index=no_index,
        certificates=tuple(environ[each] for each in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(each)),
        client_certificate=environ.get("SSL_CLIENT_CERT", ""),
        trusted_hosts=(*_words(environ.get("UV_INSECURE_HOST")), *_texts(tables, "allow-insecure-host")),
        proxies=tuple(_proxies(tables)),
        keyring=(environ.get("UV_KEYRING_PROVIDER") or _first(tables, "keyring-provider")) == "subprocess",
        timeout=seconds(next(filter(None, map(environ.get, _TIMEOUTS)), None)),
    )


def _from_variables(environ: Mapping[str, str]) -> Iterator[tuple[Index, bool]]:
    """And whether it takes the place of the public index."""
    yield from ((_one(each, environ), False) for each in _words(environ.get("UV_INDEX")))
    yield from ((_one(each, environ), False) for each in _words(environ.get("UV_EXTRA_INDEX_URL")))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        yield from ((_one(each, environ), True) for each in _words(environ.get(name))[:1])


def _from_table(table: dict[str, Any], environ: Mapping[str, str]) -> Iterator[tuple[Index, bool]]:
    listed = table.get("index")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(each.get("url"), str):
            yield _with_login(index(each["url"]), str(each.get("name") or ""), environ), each.get("default") is True
    yield from ((index(each), False) for each in _texts([table], "extra-index-url"))
    yield from ((index(each), True) for each in _texts([table], "index-url"))


def _one(text: str, environ: Mapping[str, str]) -> Index:
    """`name=url`, or a url alone."""
    match = _NAMED.fullmatch(text)
    return _with_login(index(match["url"]), match["name"] or "", environ) if match else index(text)


def _with_login(found: Index, name: str, environ: Mapping[str, str]) -> Index:
    """An index that has a name may have its login in variables."""
    if not name:
        return found
    stem = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    username, password = environ.get(f"{stem}_USERNAME"), environ.get(f"{stem}_PASSWORD")
    if username is None and password is None:
        return found
    return replace(found, login=Login(username or "", password))


def _proxies(tables: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for scheme in ("http", "https"):
        if address := _first(tables, f"{scheme}-proxy"):
            yield scheme, address


def _files(environ: Mapping[str, str], cwd: Path) -> Iterator[dict[str, Any]]:
    """The most important first. A file that is named replaces all others."""
    if named := environ.get("UV_CONFIG_FILE"):
        yield _parsed(Path(named))
        return
    if is_true(environ.get("UV_NO_CONFIG", "")):
        return
    yield _of_project(cwd)
    yield _parsed(user_folder(environ) / "uv" / "uv.toml")
    yield from (_parsed(folder / "uv" / "uv.toml") for folder in reversed(system_folders(environ)))
    yield _parsed(Path("/etc/uv/uv.toml"))


def _of_project(cwd: Path) -> dict[str, Any]:
    for folder in (cwd, *cwd.parents):
        if (own := folder / "uv.toml").is_file():
            return _parsed(own)
        if (project := folder / "pyproject.toml").is_file() and (found := _table(_parsed(project), "tool", "uv")):
            return found
    return {}


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return decode.toml_file(path)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.debug("%s is not read: %s", path, error)
        return {}


def _table(found: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = found.get(name)
        found = inner if isinstance(inner, dict) else {}
    return found


def _texts(tables: list[dict[str, Any]], key: str) -> tuple[str, ...]:
    """All files' values: uv adds lists up."""
    values = (table.get(key) for table in tables)
    lists = ([each] if isinstance(each, str) else each for each in values if isinstance(each, (str, list)))
    return tuple(each for listed in lists for each in listed if isinstance(each, str))


def _first(tables: list[dict[str, Any]], key: str) -> str:
    return next(iter(_texts(tables, key)), "")


def _words(text: str | None) -> list[str]:
    return (text or "").split()
