"""`name==version` from private indexes, as pip and uv reach them: certificates, logins, proxies, several indexes."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code import target
from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client, venvs
from cuwheel_core.errors import UnknownNameError
from tests.integration import index_server as site

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.index_server import Authority

FILE = "demo_cuda-1.0-py3-none-any.whl"
PASSWORD = "s3cret/pass"  # noqa: S105
LOGIN = f"anna:{PASSWORD}"
QUOTED = "anna:s3cret%2Fpass"
KEYRING = """#!/bin/sh
case "$*" in
  "get {service} anna" | "get {service}/ anna") printf '%s\\n' 's3cret/pass' ;;
  "--mode=creds --output=json get {service} anna" | "--mode=creds --output=json get {service}/ anna")  # pip 26.3
    printf '%s\\n' '{{"username": "anna", "password": "s3cret/pass"}}' ;;
  "--mode creds get {service}" | "get {service} --mode creds") printf '%s\\n%s\\n' anna 's3cret/pass' ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return site.make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    monkeypatch.setattr(addresses, "_seen", {})
    monkeypatch.setattr(client, "_asked", {})
    return site.clean_environment(monkeypatch, tmp_path)


def test_a_private_authority(tool: str, authority: Authority, given: Callable[..., None]) -> None:
    """In pip's settings, which uv is handed too."""
    with site.serving(site.Behaviour.index(), tls=authority.context()) as url:
        given(PIP_INDEX_URL=f"{url}/simple")
        with pytest.raises(NetworkError, match="certificate is not trusted") as caught:
            target.wheel_of("demo-cuda==1.0")
        assert "PIP_CERT" in caught.value.hint
        given(PIP_CERT=authority.ca)
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


def test_a_private_authority_in_a_file(
    tool: str, authority: Authority, given: Callable[..., None], tmp_path: Path
) -> None:
    with site.serving(site.Behaviour.index(), tls=authority.context()) as url:
        config = tmp_path / "named.conf"
        config.write_text(f"[global]\nindex-url = {url}/simple\nextra-index-url =\n[install]\ncert = {authority.ca}\n")
        given(PIP_CONFIG_FILE=config)
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_authorities_that_variables_name(variable: str, authority: Authority, given: Callable[..., None]) -> None:
    with site.serving(site.Behaviour.index(), tls=authority.context()) as url:
        given(UV_DEFAULT_INDEX=f"{url}/simple", SSL_CERT_FILE=authority.ca)
        given(PIP_INDEX_URL=f"{url}/simple", **{variable: authority.ca})
        assert target.wheel_of("demo-cuda==1.0").name == FILE


def test_a_server_that_asks_for_our_certificate(tool: str, authority: Authority, given: Callable[..., None]) -> None:
    with site.serving(site.Behaviour.index(), tls=authority.context(ask_client=True)) as url:
        given(PIP_INDEX_URL=f"{url}/simple", PIP_CERT=authority.ca, PIP_CLIENT_CERT=authority.client)
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


def test_a_host_that_is_trusted_without_a_certificate(
    tool: str, authority: Authority, given: Callable[..., None]
) -> None:
    with site.serving(site.Behaviour.index(), tls=authority.context()) as url:
        given(PIP_INDEX_URL=f"{url}/simple", PIP_TRUSTED_HOST="localhost")
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


def _in_address(url: str, given: Callable[..., None], _folder: Path) -> None:
    given(PIP_INDEX_URL=url.replace("://", f"://{QUOTED}@") + "/simple")


def _in_netrc(url: str, given: Callable[..., None], folder: Path) -> None:
    (folder / "netrc").write_text("machine 127.0.0.1 login anna password s3cret/pass\n")
    given(PIP_INDEX_URL=f"{url}/simple", NETRC=folder / "netrc")


def _in_home(url: str, given: Callable[..., None], _folder: Path) -> None:
    path = Path(os.environ["HOME"], ".netrc")
    path.write_text("machine 127.0.0.1 login anna password s3cret/pass\n")
    path.chmod(0o600)
    given(PIP_INDEX_URL=f"{url}/simple")


def _in_keyring(url: str, given: Callable[..., None], folder: Path) -> None:
    """A name in the address, its password in the keyring."""
    _write_keyring(folder, f"{url}/simple")
    given(PIP_INDEX_URL=url.replace("://", "://anna@") + "/simple", PATH=f"{folder}:{os.environ['PATH']}")
    given(PIP_KEYRING_PROVIDER="subprocess")


def _write_keyring(folder: Path, service: str) -> None:
    program = folder / "keyring"
    program.write_text(KEYRING.format(service=service))
    program.chmod(0o755)


@pytest.mark.parametrize("place", [_in_address, _in_netrc, _in_home, _in_keyring])
def test_a_login(
    tool: str, place: Callable[[str, Callable[..., None], Path], None], given: Callable[..., None], tmp_path: Path
) -> None:
    behaviour = site.Behaviour.index(login=LOGIN)
    with site.serving(behaviour) as url:
        place(url, given, tmp_path)
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool
    assert ("GET", f"/files/{FILE}", LOGIN) in behaviour.asked


def test_a_login_that_only_the_keyring_knows(given: Callable[..., None], tmp_path: Path) -> None:
    """Neither name nor password in the settings: asked for when the server refuses."""
    if venvs.uv() is None:
        pytest.skip("uv is not installed here")
    with site.serving(site.Behaviour.index(login=LOGIN)) as url:
        _write_keyring(tmp_path, f"{url}/simple")
        config = tmp_path / "uv.toml"
        config.write_text(f'[[index]]\nurl = "{url}/simple"\ndefault = true\nauthenticate = "always"\n')
        given(UV_CONFIG_FILE=config, UV_KEYRING_PROVIDER="subprocess", PATH=f"{tmp_path}:{os.environ['PATH']}")
        os.environ.pop("UV_NO_CONFIG")
        assert target.wheel_of("demo-cuda==1.0").name == FILE


@pytest.mark.skipif(venvs.uv() is None, reason="uv is not installed here")
class TestUvAlone:
    def test_a_named_index_with_its_login_in_variables(self, given: Callable[..., None], tmp_path: Path) -> None:
        behaviour = site.Behaviour.index(login=LOGIN)
        with site.serving(behaviour) as url:
            config = tmp_path / "uv.toml"
            config.write_text(f'[[index]]\nname = "our-own"\nurl = "{url}/simple"\ndefault = true\n')
            given(UV_CONFIG_FILE=config, UV_INDEX_OUR_OWN_USERNAME="anna", UV_INDEX_OUR_OWN_PASSWORD=PASSWORD)
            os.environ.pop("UV_NO_CONFIG")
            assert target.wheel_of("demo-cuda==1.0").name == FILE
        assert ("GET", f"/files/{FILE}", LOGIN) in behaviour.asked

    def test_pip_is_not_asked_for_a_private_name(
        self, given: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would take a stranger's project of that name from the public index."""
        monkeypatch.setattr(venvs, "pip", lambda: pytest.fail("pip was asked"))
        with site.serving(site.Behaviour.index()) as url:
            given(UV_INDEX=f"ours={url}/simple", UV_DEFAULT_INDEX=f"{url}/simple")
            with pytest.raises(UnknownNameError):
                target.wheel_of("demo-cuda==9.9")


def test_no_login_and_a_wrong_one(given: Callable[..., None]) -> None:
    with site.serving(site.Behaviour.index(login=LOGIN)) as url:
        given(PIP_INDEX_URL=f"{url}/simple")
        with pytest.raises(NetworkError, match="requires a login, and none is configured") as caught:
            target.wheel_of("demo-cuda==1.0")
        assert "netrc" in caught.value.hint
        given(PIP_INDEX_URL=url.replace("://", "://anna:wr0ng@") + "/simple")
        with pytest.raises(NetworkError, match="rejected the login") as caught:
            target.wheel_of("demo-cuda==1.0")
        assert "wr0ng" not in caught.value.message + caught.value.hint


def test_a_login_does_not_follow_to_another_server(given: Callable[..., None]) -> None:
    """Files on another host, or behind a redirect, are fetched without it."""
    store = site.Behaviour.index()
    with site.serving(store) as elsewhere:
        behaviour = site.Behaviour.index(login=LOGIN, href=f"/moved/{FILE}")
        behaviour.redirect[f"/moved/{FILE}"] = f"{elsewhere}/files/{FILE}"
        with site.serving(behaviour) as url:
            given(PIP_INDEX_URL=url.replace("://", f"://{QUOTED}@") + "/simple")
            assert target.wheel_of("demo-cuda==1.0").name == FILE
    assert store.asked
    assert {login for _, _, login in store.asked} == {""}


@pytest.mark.parametrize("way", ["pip", "environment", "with login"])
def test_a_proxy(way: str, tool: str, given: Callable[..., None]) -> None:
    passed = site.Behaviour()
    with site.serving(passed, proxy=True) as proxy, site.serving(site.Behaviour.index()) as url:
        given(PIP_INDEX_URL=f"{url}/simple")
        if way == "pip":
            given(PIP_PROXY=proxy.removeprefix("http://"))
        else:
            given(HTTP_PROXY=proxy if way == "environment" else proxy.replace("://", "://me:pw@"))
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool
    assert ("GET", f"{url}/files/{FILE}", "Basic bWU6cHc=" if way == "with login" else "") in passed.asked


def test_no_proxy_for_what_is_excepted(tool: str, given: Callable[..., None]) -> None:
    with site.serving(site.Behaviour.index()) as url:
        dead = f"http://127.0.0.1:{site.unused_port()}"
        given(
            PIP_INDEX_URL=f"{url}/simple", HTTP_PROXY=dead, http_proxy=dead, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1"
        )
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


def test_tls_through_a_proxy(authority: Authority, given: Callable[..., None]) -> None:
    passed = site.Behaviour()
    with (
        site.serving(passed, proxy=True) as proxy,
        site.serving(site.Behaviour.index(), tls=authority.context()) as url,
    ):
        given(PIP_INDEX_URL=f"{url}/simple", PIP_CERT=authority.ca, HTTPS_PROXY=proxy)
        assert target.wheel_of("demo-cuda==1.0").name == FILE
    assert {method for method, _, _ in passed.asked} == {"CONNECT"}


def test_two_indexes(tool: str, given: Callable[..., None]) -> None:
    """The second has it, and has a login of its own."""
    second = site.Behaviour.index(login=LOGIN)
    with site.serving(site.Behaviour.index(project="other")) as one, site.serving(second) as two:
        given(PIP_INDEX_URL=f"{one}/simple", PIP_EXTRA_INDEX_URL=two.replace("://", f"://{QUOTED}@") + "/simple")
        assert target.wheel_of("demo-cuda==1.0").name == FILE, tool


def test_find_links_without_an_index(tool: str, given: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / FILE).write_bytes(site.wheel())
    given(PIP_NO_INDEX="1", PIP_FIND_LINKS=tmp_path / "links")
    assert target.wheel_of("demo-cuda==1.0") == tmp_path / "links" / FILE, tool


def _refused() -> str:
    return f"http://127.0.0.1:{site.unused_port()}"


def test_not_reachable_is_said_at_once_and_in_these_words(given: Callable[..., None]) -> None:
    given(PIP_INDEX_URL=f"{_refused()}/simple", PIP_DEFAULT_TIMEOUT="180")
    began = time.monotonic()
    with pytest.raises(NetworkError, match=r"index not reachable: .*refused"):
        target.wheel_of("demo-cuda==1.0")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("way", [site.swallowing, site.silent])
def test_a_port_that_does_not_answer(
    way: Callable[[], object], given: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECT_S", 1.0)
    monkeypatch.setattr(client, "_INDEX_PATIENCE_S", 2.0)
    with way() as url:  # type: ignore[attr-defined]
        given(PIP_INDEX_URL=f"{url}/simple")
        began = time.monotonic()
        with pytest.raises(NetworkError, match="index not reachable: no answer within"):
            target.wheel_of("demo-cuda==1.0")
        assert time.monotonic() - began < 15


def test_a_name_that_nobody_knows(given: Callable[..., None]) -> None:
    given(PIP_INDEX_URL="https://index.invalid/simple")
    with pytest.raises(NetworkError, match=r"index\.invalid.* index not reachable"):
        target.wheel_of("demo-cuda==1.0")


def test_one_of_two_is_not_reachable(given: Callable[..., None]) -> None:
    if venvs.pip() is None:
        pytest.skip("pip is not installed here, and uv stops where one of its indexes does not answer")
    with site.serving(site.Behaviour.index()) as url:
        given(PIP_INDEX_URL=f"{url}/simple", PIP_EXTRA_INDEX_URL=f"{_refused()}/simple")
        assert target.wheel_of("demo-cuda==1.0").name == FILE


def test_names_that_lead_out_of_the_cache(tool: str, given: Callable[..., None], tmp_path: Path) -> None:
    """Whatever a server encodes in the address of a file, it is kept in the cache."""
    behaviour = site.Behaviour.index(href=f"/files/..%2F..%2F..%2F{FILE}")
    behaviour.files[f"/files/..%2F..%2F..%2F{FILE}"] = site.wheel()
    with site.serving(behaviour) as url:
        given(PIP_INDEX_URL=f"{url}/simple")
        try:
            found = target.wheel_of("demo-cuda==1.0")
        except UnknownNameError:
            assert tool  # it does not take such a link for a wheel at all
        else:
            assert (tmp_path / "cache" / "cuwheel" / "wheels") in found.resolve().parents
    assert not list(tmp_path.glob(f"*/{FILE}"))
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert not [path for path in tmp_path.rglob(FILE) if not path.is_relative_to(tmp_path / "pip-cache")]
