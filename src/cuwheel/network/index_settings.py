"""How this user's pip and uv reach servers, together: cuwheel goes where either of them may go, and no further."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.network import addresses, pip_settings, uv_settings
from cuwheel.network.tool_settings import ToolSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.network.addresses import Login
    from cuwheel.network.tool_settings import Index


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


def read(environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    return Settings(pip=pip_settings.read(environ), uv=uv_settings.read(environ, Path.cwd()), environ=environ)


class ForUv(NamedTuple):
    environ: dict[str, str]
    options: list[str]


def for_uv(environ: Mapping[str, str] | None = None) -> ForUv:
    """Variables and options by which uv gets what only pip is configured with; its own settings stay as they are."""
    environ = os.environ if environ is None else environ
    found = read(environ)
    pip, uv = found.pip, found.uv
    inherits = pip.chooses and not uv.chooses
    added = dict(_places(pip, found)) if inherits else {}
    if pip.certificates and not uv.certificates:
        added["SSL_CERT_DIR" if Path(pip.certificates[0]).is_dir() else "SSL_CERT_FILE"] = pip.certificates[0]
    if pip.client_certificate and not uv.client_certificate:
        added["SSL_CLIENT_CERT"] = pip.client_certificate
    if not uv.proxies:
        added |= {f"{scheme.upper()}_PROXY": _with_scheme(proxy) for scheme, proxy in pip.proxies}
    return ForUv({**environ, **added}, ["--no-index"] if inherits and pip.no_index else [])


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
            if int(number[:6]) != port:
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
