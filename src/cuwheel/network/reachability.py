"""Whether the indexes that somebody configured can be reached, found out before pip or uv waits for them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.network.tool_settings import Index

_PATIENCE_S = 10.0
_AT_ONCE = 8
_SHOWN = 160  # letters of what a tool said
_DECIDED = (client.CertificateError, client.LoginError)
# What pip and uv print where a connection does not come about.
_NO_CONNECTION = re.compile(
    r"Failed to establish a new connection|NewConnectionError|ConnectTimeoutError|Connection refused|connection error"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable|No route to host"
    r"|dns error|failed to lookup address|tcp connect error|error sending request|client error \(Connect\)"
    r"|operation timed out|Connection to \S+ timed out|Read timed out",
    re.IGNORECASE,
)


def failures(indexes: Iterable[Index], project: str) -> dict[str, NetworkError]:
    """What stands in the way, by the index's address. One that says no to the project can be reached."""
    asked = [each for each in indexes if addresses.local_path(each.url) is None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda each: _failure(each.url, project), asked)
        return {each.url: error for each, error in zip(asked, found, strict=True) if error}


def _failure(url: str, project: str) -> NetworkError | None:
    try:
        with client.request("GET", f"{url.rstrip('/')}/{project}/", patience=_PATIENCE_S):
            return None
    except client.NotReachableError as error:
        return client.NotReachableError(url, error.reason, "index")
    except _DECIDED as error:
        error.args = (error.message,)
        return error
    except NetworkError as error:
        silent = "sent nothing" in error.message
        return client.NotReachableError(url, f"no answer within {_PATIENCE_S:g} s", "index") if silent else None


def words_of_no_connection(output: str) -> str | None:
    """Those in which pip or uv says that it reached nobody."""
    match = _NO_CONNECTION.search(output)
    return re.split(r"['\")\n]", output[match.start() :], maxsplit=1)[0][:_SHOWN] if match else None
