"""One request: through the right proxy, with the right certificates and login, redirects followed with care."""

from __future__ import annotations

import contextlib
import netrc
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from msgspec import Struct

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, settings
from cuwheel.network.addresses import Login
from cuwheel.network.settings import Index, Settings, home_folder
from cuwheel.support import log, process
from cuwheel_core.errors import CuwheelError

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self


# Which login a server gets: from the address, the index's settings, netrc, the keyring, uv's own store.

_ASK_S = 30.0
_asked: dict[tuple[str, ...], str] = {}


def login_at_once(url: str, settings: Settings) -> Login | None:
    """What is sent with the first request: pip and uv do not wait to be asked either."""
    for found in (addresses.remembered(url), settings.index_login(url), _from_netrc(url, settings)):
        if found and found.password is None:  # a name alone: its password is in the keyring, or it is a token
            return next(_from_keyring(url, settings, found.username), found)
        if found:
            return found
    return None


def logins_on_refusal(url: str, settings: Settings, sent: Login | None) -> Iterator[Login]:
    """What is tried when a server does not let us in: each in turn."""
    username = sent.username if sent else None
    yield from (each for each in _from_keyring(url, settings, username) if each != sent)
    yield from (each for each in _from_uv(url, settings, username) if each != sent)


def _from_netrc(url: str, settings: Settings) -> Login | None:
    named = settings.environ.get("NETRC")
    for path in [Path(named)] if named else [home_folder(settings.environ) / name for name in (".netrc", "_netrc")]:
        try:
            found = netrc.netrc(path).authenticators(addresses.origin(url)[1])
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError) as error:
            if not isinstance(error, FileNotFoundError):
                log.debug("%s is not read: %s", path, error)
            continue
        if found:
            return Login(found[0] or "", found[2])
    return None


def _from_keyring(url: str, settings: Settings, username: str | None) -> Iterator[Login]:
    """Yields logins from the keyring, as pip and uv look for them: by the index, with and without slash; by server."""
    program = settings.keyring
    if program is None:
        return
    parts = addresses.split(url)
    there = [each.url for each in settings.indexes if addresses.origin(each.url) == addresses.origin(url)]
    written = [form for each in there for form in (each, each.rstrip("/") + "/", each.rstrip("/"))]
    for service in dict.fromkeys([*written, f"{parts.scheme}://{parts.netloc}", parts.netloc]):
        if username:
            if password := _asked_of([program, "get", service, username], settings):
                yield Login(username, password)
        elif (answer := _asked_of([program, "--mode", "creds", "get", service], settings)) and "\n" in answer:
            name, password = answer.split("\n", 1)
            yield Login(name, password)


def _from_uv(url: str, settings: Settings, username: str | None) -> Iterator[Login]:
    """What `uv auth login` stored."""
    program = process.find_program("uv", path=settings.environ.get("PATH"))
    if program is None:
        return
    parts = addresses.split(url)
    options = ["--username", username] if username else []
    command = [program, "--quiet", "auth", "token", *options, f"{parts.scheme}://{parts.netloc}"]
    if token := _asked_of(command, settings):
        yield Login(username or "__token__", token)


def _asked_of(command: list[str], settings: Settings) -> str:
    """Once a process: a keyring may ask its user to unlock it."""
    if (key := tuple(command)) not in _asked:
        environ = {**settings.environ, "PYTHONIOENCODING": "utf-8"}
        try:
            done = process.run(command, timeout=_ASK_S, check=False, env=environ)
            _asked[key] = done.stdout.strip("\r\n") if done.status == 0 else ""
        except CuwheelError as error:
            log.debug("%s: %s", command[0], error.message)
            _asked[key] = ""
    return _asked[key]


CONNECT_S = 5.0
IDLE_S = 30.0  # without a single byte, where neither pip nor uv is told otherwise
_REDIRECTS = 10
_ATTEMPTS = 2
_PAUSE_S = 0.5
_BUSY = (429, 502, 503, 504)
_REFUSED = (401, 403)
_NOT_THERE = (404, 410)


NOT_REACHABLE = "check the network and the address; behind a proxy set HTTPS_PROXY, or pip's `proxy`"


class NotReachableError(NetworkError):
    """No connection came about: nobody can say whether the server has what was asked for."""

    def __init__(self, url: str, reason: str, what: str = "is") -> None:
        """`what`: what it was to be: `index`."""
        self.reason = re.sub(r"\[Errno -?\d+\] ", "", reason)
        super().__init__(url, f"{what} not reachable: {self.reason}", NOT_REACHABLE)


class SilentServerError(NetworkError):
    """Nothing came on a connection for as long as one waits."""

    def __init__(self, url: str, seconds: float | None, hint: str = "") -> None:
        super().__init__(url, f"sent nothing for {seconds or IDLE_S:g} s", hint)


class CertificateError(NetworkError):
    def __init__(self, url: str, reason: str) -> None:
        hint = "give the certificate of its authority: PIP_CERT=ca.pem, `cert` in pip.conf, or SSL_CERT_FILE"
        super().__init__(url, f"its certificate is not trusted: {reason}", hint)


class LoginError(NetworkError):
    def __init__(self, url: str, status: int, *, sent: bool) -> None:
        did = "rejected the login" if sent else "requires a login, and none is configured"
        hint = (
            "put the login where pip and uv look: the index's address, ~/.netrc, the keyring, UV_INDEX_NAME_USERNAME "
            "and "
            "_PASSWORD"
        )
        super().__init__(url, f"{did} (status {status})", hint)


class StatusError(NetworkError):
    """The server answers, and says no."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        self.status = status
        super().__init__(url, f"answers {status} {reason}".rstrip())


class NotThereError(StatusError):
    """The server knows no such thing."""


class Page(Struct, frozen=True):
    """`url`: where it came from in the end, after redirects: its links are relative to that. `kind`: its media type."""

    url: str
    kind: str
    body: bytes
    validators: dict[str, str] = {}


class Session:
    """Connections that stay open from one request to the next, from any thread; the settings are read once.

    `pages`: of indexes, by what was asked for: within one command each is asked for once.
    """

    def __init__(self) -> None:
        self.settings = settings.read_settings()
        self.pages: dict[str, Page] = {}
        self._clients: dict[tuple[tuple[str, str, int], float], httpx.Client] = {}
        self._trusting: dict[bool, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._clients.values():
            each.close()
        self._clients.clear()

    def client(self, url: str, patience: float) -> httpx.Client:
        key = addresses.origin(url), patience
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._client(url, patience)
            return self._clients[key]

    def _client(self, url: str, patience: float) -> httpx.Client:
        import httpx  # noqa: PLC0415

        proxy = self.settings.proxy(url)
        _look_up(proxy or url, url)
        secure = self._trust(proxy) if proxy and proxy.startswith("https:") else None
        try:
            return httpx.Client(
                timeout=httpx.Timeout(patience, connect=CONNECT_S),
                verify=self._trust(url) if url.startswith("https:") else False,
                proxy=httpx.Proxy(proxy, ssl_context=secure) if proxy else None,
                trust_env=False,  # all of it is in the settings
                headers={"Accept-Encoding": "identity"},
            )
        except (ImportError, ValueError) as error:  # SOCKS needs a library of its own
            raise NetworkError(addresses.parted(proxy or url)[0], f"this proxy cannot be used: {error}") from error

    def _trust(self, url: str) -> ssl.SSLContext:
        """One for all servers whose certificates are checked: to read the authorities takes longer than to connect."""
        checked = not self.settings.is_trusted(url)
        if checked not in self._trusting:
            self._trusting[checked] = _trust(url, self.settings)
        return self._trusting[checked]


@contextlib.contextmanager
def request(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    patience: float | None = None,
    idle: float | None = None,
    session: Session | None = None,
) -> Iterator[httpx.Response]:
    """An answer that says yes, its body not read yet. `patience`: seconds without a single byte.

    Without it the user's pip and uv decide, and where nothing is set there `idle`.
    """
    import httpx  # noqa: PLC0415 - a tenth of a second that most verbs never need

    url = addresses.plain(url)
    try:
        with contextlib.ExitStack() as stack:
            kept = session or stack.enter_context(Session())
            patience = patience or kept.settings.patience or idle or IDLE_S
            yield _followed(stack, method, url, _Asking(dict(headers or {}), patience, kept))
    except httpx.TimeoutException as error:
        hint = "PIP_TIMEOUT=300 or UV_HTTP_TIMEOUT=300 waits longer; what has come of a download is kept"
        raise SilentServerError(url, patience, hint) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise NetworkError(url, reason, hint="check the network, or the address") from error


class _Asking(NamedTuple):
    headers: dict[str, str]
    patience: float
    session: Session


def _followed(stack: contextlib.ExitStack, method: str, url: str, asking: _Asking) -> httpx.Response:
    for _ in range(_REDIRECTS + 1):
        response = _answered(stack, method, url, asking)
        if response.next_request is None:
            return response
        target = urljoin(url, response.headers["Location"])
        if not target.startswith(("https://", "http://")) or (url.startswith("https:") and target.startswith("http:")):
            raise NetworkError(url, f"redirects to {addresses.parted(target)[0]}, which is not safe")
        url = addresses.plain(target)
    raise NetworkError(url, f"redirects more than {_REDIRECTS} times")


def _answered(stack: contextlib.ExitStack, method: str, url: str, asking: _Asking) -> httpx.Response:
    import httpx  # noqa: PLC0415

    found = asking.session.settings
    client = asking.session.client(url, asking.patience)
    login = login_at_once(url, found)
    waiting = logins_on_refusal(url, found, login)
    while True:
        auth = (login.username, login.password or "") if login else None
        response = _sent(client, client.build_request(method, url, headers=asking.headers), auth, url)
        stack.callback(response.close)
        if response.status_code in _REFUSED and (other := next(waiting, None)):
            response.close()
            login = other
            continue
        if response.status_code in _REFUSED:
            raise LoginError(url, response.status_code, sent=login is not None)
        if response.status_code in _NOT_THERE:
            raise NotThereError(url, response.status_code, response.reason_phrase)
        if response.is_error and response.status_code != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise StatusError(url, response.status_code, response.reason_phrase)
        return response


def _sent(client: httpx.Client, request: httpx.Request, auth: tuple[str, str] | None, url: str) -> httpx.Response:
    """A refused or broken connection is tried again once, as is a server that is busy; silence is not."""
    import httpx  # noqa: PLC0415

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            response = client.send(request, stream=True, auth=auth, follow_redirects=False)
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise NotReachableError(url, f"no answer within {CONNECT_S:g} s") from None
        except (httpx.ConnectError, httpx.ProxyError, httpx.RemoteProtocolError) as error:
            reason = str(error) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason or isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise CertificateError(url, reason) from error
            if attempt == _ATTEMPTS:
                raise NotReachableError(url, reason) from error
        else:
            if response.status_code not in _BUSY or attempt == _ATTEMPTS:
                return response
            response.close()
        log.debug("%s: trying again", url)
        time.sleep(_PAUSE_S)
    raise AssertionError  # the last attempt returns or raises


def _trust(url: str, found: Settings) -> ssl.SSLContext:
    """The authorities that pip or uv trusts; the system's and certifi's too where one has no list of its own."""
    named = (*found.pip.certificates, *found.uv.certificates)
    usual = not (found.pip.certificates and found.uv.certificates)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if found.is_trusted(url):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        if usual:
            import certifi  # noqa: PLC0415 - for TLS alone; httpx brings it

            context.load_default_certs()
            context.load_verify_locations(certifi.where())
        for place in named:
            folder = Path(place).is_dir()
            context.load_verify_locations(capath=place) if folder else context.load_verify_locations(place)
        for place in filter(None, (found.pip.client_certificate, found.uv.client_certificate)):
            context.load_cert_chain(place)
    except (OSError, ssl.SSLError) as error:
        hint = "check PIP_CERT, PIP_CLIENT_CERT, REQUESTS_CA_BUNDLE, SSL_CERT_FILE and SSL_CLIENT_CERT, and pip.conf"
        reason = getattr(error, "strerror", None) or str(error)
        raise NetworkError(place if named else url, f"this certificate cannot be read: {reason}", hint) from error
    return context


def _look_up(url: str, asked: str) -> None:
    """A resolver that does not answer makes programs wait for half a minute, and cannot be given a time limit."""
    _, host, port = addresses.origin(url)
    failures: list[OSError] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, port or None, type=socket.SOCK_STREAM)
        except OSError as error:
            failures.append(error)
        except UnicodeError:
            failures.append(OSError("it is not a host name"))

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(CONNECT_S)
    if thread.is_alive():
        raise NotReachableError(asked, f"its name was not resolved within {CONNECT_S:g} s")
    if failures:
        raise NotReachableError(asked, failures[0].strerror or str(failures[0]))


# Whether the indexes that somebody configured can be reached, found out before pip or uv waits for them.

_INDEX_PATIENCE_S = 10.0
_AT_ONCE = 8
_SHOWN = 160  # letters of what a tool said
_DECIDED = (CertificateError, LoginError)
# What pip and uv print where a connection does not come about.
_NO_CONNECTION = re.compile(
    r"Failed to establish a new connection|NewConnectionError|ConnectTimeoutError|Connection refused|connection error"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable|No route to host"
    r"|dns error|failed to lookup address|tcp connect error|error sending request|client error \(Connect\)"
    r"|operation timed out|Connection to \S+ timed out|Read timed out",
    re.IGNORECASE,
)


def unreachable_indexes(indexes: Iterable[Index], project: str) -> dict[str, NetworkError]:
    """What stands in the way, by the index's address. One that says no to the project can be reached."""
    asked = [each for each in indexes if addresses.local_path(each.url) is None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda each: _why_unreachable(each.url, project), asked)
        return {each.url: error for each, error in zip(asked, found, strict=True) if error}


def _why_unreachable(url: str, project: str) -> NetworkError | None:
    try:
        with request("GET", f"{url.rstrip('/')}/{project}/", patience=_INDEX_PATIENCE_S):
            return None
    except NotReachableError as error:
        return NotReachableError(url, error.reason, "index")
    except _DECIDED as error:
        return error
    except SilentServerError:
        return NotReachableError(url, f"no answer within {_INDEX_PATIENCE_S:g} s", "index")
    except NetworkError:
        return None


def words_of_no_connection(output: str) -> str | None:
    """Those in which pip or uv says that it reached nobody."""
    match = _NO_CONNECTION.search(output)
    return re.split(r"['\")\n]", output[match.start() :], maxsplit=1)[0][:_SHOWN] if match else None
