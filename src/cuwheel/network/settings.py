"""How this user's pip and uv are configured. cuwheel reaches servers by it: where either may go, and no further."""

from __future__ import annotations

import configparser
import ipaddress
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cuwheel.network import addresses
from cuwheel.network.addresses import Login, parted
from cuwheel.support import codec, log
from cuwheel_core.support import bounded, opening

# What pip or uv is configured with, as far as it says where packages are and how to get at them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """`url` has no login in it."""

    url: str
    login: Login | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """`indexes` are those that somebody named, in order; `public`: the tool's own default is asked beside them."""

    indexes: tuple[Index, ...] = ()
    public: bool = True
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    certificates: tuple[str, ...] = ()  # files and folders, in place of the usual authorities
    client_certificate: str = ""
    trusted_hosts: tuple[str, ...] = ()  # `host` or `host:port`, whose certificates are not checked
    proxies: tuple[tuple[str, str], ...] = ()  # scheme and address, which may hold a login
    keyring: bool = False
    timeout: float | None = None  # seconds without a single byte

    @property
    def chooses(self) -> bool:
        """Whether it says where packages come from."""
        return bool(self.indexes or self.find_links or self.no_index)


def parse_index(url: str) -> Index:
    address, login = parted(url)
    return Index(url=address, login=login)


def without_duplicates(indexes: Iterable[Index]) -> tuple[Index, ...]:
    return tuple({each.url.rstrip("/"): each for each in reversed(tuple(indexes))}.values())[::-1]


def home_folder(environ: Mapping[str, str]) -> Path:
    names = ("USERPROFILE", "HOME") if os.name == "nt" else ("HOME", "USERPROFILE")
    return Path(environ.get(names[0]) or environ.get(names[1]) or "/nonexistent")


def user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("APPDATA") or environ.get("XDG_CONFIG_HOME") or home_folder(environ) / ".config")


def system_folders(environ: Mapping[str, str]) -> list[Path]:
    """Most important last."""
    if os.name == "nt":
        return [Path(environ.get("PROGRAMDATA") or "C:\\ProgramData")]
    folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return [Path(each) for each in reversed(folders.split(":")) if each]


def parse_seconds(text: str | None) -> float | None:
    """A time limit that somebody set; None where it is none."""
    found = bounded.real(text or "")
    return found if found is not None and found > 0 else None


def is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on", "y", "t")


# pip's configuration: its files and its variables, in pip's own order.

_PIP_FILE = "pip.ini" if os.name == "nt" else "pip.conf"
_PIP_VARIABLE = "PIP_"
_PIP_SECTIONS = ("global", "download", "install")  # a command's own weighs more than what is said for all


def read_pip_settings(environ: Mapping[str, str]) -> ToolSettings:
    values = pip_options(environ)
    main = values.get("index-url", "").strip()
    no_index = is_true(values.get("no-index", ""))
    named = [main, *values.get("extra-index-url", "").split()]
    proxy = values.get("proxy", "").strip()
    bundle = values.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    return ToolSettings(
        indexes=() if no_index else without_duplicates(parse_index(each) for each in named if each),
        public=not main and not no_index,
        find_links=tuple(values.get("find-links", "").split()),
        no_index=no_index,
        certificates=(bundle.strip(),) if bundle else (),
        client_certificate=values.get("client-cert", "").strip(),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        proxies=(("http", proxy), ("https", proxy)) if proxy else (),
        keyring=values.get("keyring-provider", "auto").strip() != "disabled",
        timeout=parse_seconds(values.get("timeout") or values.get("default-timeout")),
    )


def pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Every option that is set, by pip's name for it: files first, then variables."""
    sections: dict[str, dict[str, str]] = {name: {} for name in _PIP_SECTIONS}
    for path in _pip_files(environ):
        for section, values in _pip_sections(path).items():
            sections[section] |= values
    variables = {
        _option_name(name[len(_PIP_VARIABLE) :]): value
        for name, value in environ.items()
        if name.startswith(_PIP_VARIABLE)
    }
    return {
        name: value
        for values in (*(sections[section] for section in _PIP_SECTIONS), variables)
        for name, value in values.items()
        if value.strip()
    }


def _option_name(written: str) -> str:
    return written.lower().replace("_", "-").removeprefix("--")


def _pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The most important last. A file that is named replaces the user's; the null device all of them."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    yield from (folder / "pip" / _PIP_FILE for folder in system_folders(environ))
    if sys.platform == "darwin":
        yield Path("/Library/Application Support/pip", _PIP_FILE)
    yield Path("/etc", _PIP_FILE)
    if not (named and opening.is_file(named)):
        yield home_folder(environ) / "pip" / _PIP_FILE if os.name == "nt" else home_folder(environ) / ".pip" / _PIP_FILE
        if sys.platform == "darwin":
            yield home_folder(environ) / "Library/Application Support/pip" / _PIP_FILE
        yield user_folder(environ) / "pip" / _PIP_FILE
    yield from (prefix / _PIP_FILE for prefix in _pip_prefixes(environ))
    if named:
        yield Path(named)


def _pip_prefixes(environ: Mapping[str, str]) -> list[Path]:
    """Environments whose pip may be meant: each can have a configuration of its own."""
    found = [Path(environ[name]) for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if environ.get(name)]
    if program := shutil.which("pip", path=environ.get("PATH")):
        found.insert(0, Path(program).resolve().parent.parent)
    return list(dict.fromkeys([*found, Path(sys.prefix)]))


def _pip_sections(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        log.debug("%s is not read: %s", path, error)
        return {}
    return {
        section: {_option_name(name): value for name, value in parser.items(section)}
        for section in _PIP_SECTIONS
        if parser.has_section(section)
    }


# uv's configuration: its files and its variables, in uv's own order.

_TIMEOUTS = ("UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT")  # in uv's order
_NAMED_INDEX = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)=)?(?P<url>\S+)")


def read_uv_settings(environ: Mapping[str, str], cwd: Path) -> ToolSettings:
    tables = [table for found in _uv_tables(environ, cwd) for table in (_inner_table(found, "pip"), found)]
    named = [*_indexes_of_variables(environ), *(each for table in tables for each in _indexes_of_table(table, environ))]
    default = next((each for each, is_default in named if is_default), None)
    no_index = any(table.get("no-index") is True for table in tables)
    return ToolSettings(
        indexes=()
        if no_index
        else without_duplicates(each for each, is_default in named if not is_default or each is default),
        public=default is None and not no_index,
        find_links=(*_words(environ.get("UV_FIND_LINKS", "").replace(",", " ")), *_texts(tables, "find-links")),
        no_index=no_index,
        certificates=tuple(environ[each] for each in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(each)),
        client_certificate=environ.get("SSL_CLIENT_CERT", ""),
        trusted_hosts=(*_words(environ.get("UV_INSECURE_HOST")), *_texts(tables, "allow-insecure-host")),
        proxies=tuple(_uv_proxies(tables)),
        keyring=(environ.get("UV_KEYRING_PROVIDER") or _first_text(tables, "keyring-provider")) == "subprocess",
        timeout=parse_seconds(next(filter(None, map(environ.get, _TIMEOUTS)), None)),
    )


def _indexes_of_variables(environ: Mapping[str, str]) -> Iterator[tuple[Index, bool]]:
    """And whether it takes the place of the public index."""
    yield from ((_named_index(each, environ), False) for each in _words(environ.get("UV_INDEX")))
    yield from ((_named_index(each, environ), False) for each in _words(environ.get("UV_EXTRA_INDEX_URL")))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        yield from ((_named_index(each, environ), True) for each in _words(environ.get(name))[:1])


def _indexes_of_table(table: dict[str, Any], environ: Mapping[str, str]) -> Iterator[tuple[Index, bool]]:
    listed = table.get("index")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(each.get("url"), str):
            yield (
                _with_login(parse_index(each["url"]), str(each.get("name") or ""), environ),
                each.get("default") is True,
            )
    yield from ((parse_index(each), False) for each in _texts([table], "extra-index-url"))
    yield from ((parse_index(each), True) for each in _texts([table], "index-url"))


def _named_index(text: str, environ: Mapping[str, str]) -> Index:
    """`name=url`, or a url alone."""
    match = _NAMED_INDEX.fullmatch(text)
    return _with_login(parse_index(match["url"]), match["name"] or "", environ) if match else parse_index(text)


def _with_login(found: Index, name: str, environ: Mapping[str, str]) -> Index:
    """An index that has a name may have its login in variables."""
    if not name:
        return found
    stem = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    username, password = environ.get(f"{stem}_USERNAME"), environ.get(f"{stem}_PASSWORD")
    if username is None and password is None:
        return found
    return replace(found, login=Login(username or "", password))


def _uv_proxies(tables: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for scheme in ("http", "https"):
        if address := _first_text(tables, f"{scheme}-proxy"):
            yield scheme, address


def _uv_tables(environ: Mapping[str, str], cwd: Path) -> Iterator[dict[str, Any]]:
    """The most important first. A file that is named replaces all others."""
    if named := environ.get("UV_CONFIG_FILE"):
        yield _toml_table(Path(named))
        return
    if is_true(environ.get("UV_NO_CONFIG", "")):
        return
    yield _project_table(cwd)
    yield _toml_table(user_folder(environ) / "uv" / "uv.toml")
    yield from (_toml_table(folder / "uv" / "uv.toml") for folder in reversed(system_folders(environ)))
    yield _toml_table(Path("/etc/uv/uv.toml"))


def _project_table(cwd: Path) -> dict[str, Any]:
    for folder in (cwd, *cwd.parents):
        if opening.is_file(own := folder / "uv.toml"):
            return _toml_table(own)
        if opening.is_file(project := folder / "pyproject.toml") and (
            found := _inner_table(_toml_table(project), "tool", "uv")
        ):
            return found
    return {}


def _toml_table(path: Path) -> dict[str, Any]:
    try:
        return codec.read_toml(path)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.debug("%s is not read: %s", path, error)
        return {}


def _inner_table(found: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = found.get(name)
        found = inner if isinstance(inner, dict) else {}
    return found


def _texts(tables: list[dict[str, Any]], key: str) -> tuple[str, ...]:
    """All files' values: uv adds lists up."""
    values = (table.get(key) for table in tables)
    lists = ([each] if isinstance(each, str) else each for each in values if isinstance(each, (str, list)))
    return tuple(each for listed in lists for each in listed if isinstance(each, str))


def _first_text(tables: list[dict[str, Any]], key: str) -> str:
    return next(iter(_texts(tables, key)), "")


def _words(text: str | None) -> list[str]:
    return (text or "").split()


# pip's and uv's together: what cuwheel itself goes by.


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    pip: ToolSettings
    uv: ToolSettings
    environ: Mapping[str, str] = field(repr=False)

    @property
    def indexes(self) -> tuple[Index, ...]:
        return (*self.pip.indexes, *self.uv.indexes)

    @property
    def keyring(self) -> str | None:
        """The program, where either tool may ask it."""
        return shutil.which("keyring", path=self.environ.get("PATH")) if self.pip.keyring or self.uv.keyring else None

    @property
    def patience(self) -> float | None:
        """Seconds without a single byte: the longer one where both tools are told."""
        return max(filter(None, (self.pip.timeout, self.uv.timeout)), default=None)

    def index_login(self, url: str) -> Login | None:
        return addresses.nearest(url, [(each.url, each.login) for each in self.indexes if each.login])

    def is_trusted(self, url: str) -> bool:
        """Whether somebody said that its certificate need not be checked."""
        _, host, port = addresses.origin(url)
        names = {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}", "*"}
        return any(each.lower() in names for each in (*self.pip.trusted_hosts, *self.uv.trusted_hosts))

    def proxy(self, url: str) -> str | None:
        """pip's own goes for everything; those of the environment for what NO_PROXY does not name."""
        scheme, host, port = addresses.origin(url)
        configured = dict(self.uv.proxies) | dict(self.pip.proxies)
        if scheme in configured:
            return _with_scheme(configured[scheme])
        found = self._variable(f"{scheme}_proxy") or self._variable("all_proxy")
        if not found or _is_excepted(host, port, self._variable("no_proxy")):
            return None
        return _with_scheme(found)

    def _variable(self, name: str) -> str:
        """Lower case first, as every program has it. HTTP_PROXY may come from a request's header in CGI programs."""
        upper = "" if name == "http_proxy" and "REQUEST_METHOD" in self.environ else self.environ.get(name.upper(), "")
        return (self.environ.get(name) or upper).strip()


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    return Settings(
        pip=read_pip_settings(environ),
        uv=read_uv_settings(environ, Path.cwd()),
        environ=environ,
    )


class SettingsForUv(NamedTuple):
    environ: dict[str, str]
    options: list[str]


# Where pip and uv put what, and for which Python, is said on their command lines. These would lead them elsewhere, with
# exit status 0; how they reach their indexes, and which versions they may take, stays the user's.
LEADING_ELSEWHERE = (
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_REQUIRE_VIRTUALENV", "PIP_ISOLATED"),
    *("PIP_DRY_RUN", "PIP_REPORT", "PIP_EDITABLE", "PIP_REQUIREMENT", "PIP_NO_DEPS", "PIP_REQUIRE_HASHES"),
    *("PIP_UPGRADE", "PIP_IGNORE_INSTALLED", "PIP_FORCE_REINSTALL"),
    *("PIP_PLATFORM", "PIP_PYTHON_VERSION", "PIP_IMPLEMENTATION", "PIP_ABI"),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_WORKING_DIRECTORY"),
    *("UV_NO_DEPS", "UV_REQUIRE_HASHES"),
)


def for_installers(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables with which pip and uv do what their command lines say; `user = true` in pip.conf is overruled."""
    environ = os.environ if environ is None else environ
    return {**{name: each for name, each in environ.items() if name not in LEADING_ELSEWHERE}, "PIP_USER": "0"}


def settings_for_uv(found: Settings) -> SettingsForUv:
    """Variables and options by which uv gets what only pip is configured with; its own settings stay as they are."""
    pip, uv = found.pip, found.uv
    inherits = pip.chooses and not uv.chooses
    added = dict(_places(pip, found)) if inherits else {}
    if pip.certificates and not uv.certificates:
        added["SSL_CERT_DIR" if Path(pip.certificates[0]).is_dir() else "SSL_CERT_FILE"] = pip.certificates[0]
    if pip.client_certificate and not uv.client_certificate:
        added["SSL_CLIENT_CERT"] = pip.client_certificate
    if not uv.proxies:
        added |= {f"{scheme.upper()}_PROXY": _with_scheme(proxy) for scheme, proxy in pip.proxies}
    return SettingsForUv({**found.environ, **added}, ["--no-index"] if inherits and pip.no_index else [])


def _places(pip: ToolSettings, found: Settings) -> Iterator[tuple[str, str]]:
    urls = [addresses.with_login(each.url, each.login) for each in pip.indexes]
    if urls and not pip.public:
        yield "UV_DEFAULT_INDEX", urls.pop(0)
    if urls:
        yield "UV_INDEX", " ".join(urls)
        yield "UV_INDEX_STRATEGY", found.environ.get("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip chooses
    if pip.find_links:
        yield "UV_FIND_LINKS", ",".join(pip.find_links)
    if pip.trusted_hosts and not found.uv.trusted_hosts:
        yield "UV_INSECURE_HOST", " ".join(pip.trusted_hosts)
    if pip.keyring and found.keyring:
        yield "UV_KEYRING_PROVIDER", found.environ.get("UV_KEYRING_PROVIDER", "subprocess")


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excepted(host: str, port: int, excepted: str) -> bool:
    """`*`, a host or domain with or without a leading dot, an address, a network, each perhaps with a port."""
    for each in excepted.lower().replace(",", " ").split():
        name, colon, number = each.rpartition(":")
        if colon and number.isdigit() and not name.endswith(":"):
            if bounded.digits(number) != port:
                continue
            each = name  # noqa: PLW2901
        bare = each.strip("[]").lstrip("*").lstrip(".")
        if each == "*" or host == bare or (bare and host.endswith(f".{bare}")) or _is_within(host, bare):
            return True
    return False


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except (ValueError, TypeError):
        return False
