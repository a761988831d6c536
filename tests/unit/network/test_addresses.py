from __future__ import annotations

import pytest

from cuwheel.errors import NetworkError
from cuwheel.network import addresses
from cuwheel.network.addresses import Login
from cuwheel.toolchains.toolchain import Archive


@pytest.fixture(autouse=True)
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_seen", {})


@pytest.mark.parametrize(
    ("url", "plain", "login"),
    [
        ("https://u:p@x.example/a?b#c", "https://x.example/a?b#c", Login("u", "p")),
        ("https://token@x.example/a", "https://x.example/a", Login("token", None)),
        ("https://u:p%40%2F@x.example:8443/a", "https://x.example:8443/a", Login("u", "p@/")),
        ("git+https://u:p@x.example/a.git", "git+https://x.example/a.git", Login("u", "p")),
        ("http://u:p@[::1]:80/a", "http://[::1]:80/a", Login("u", "p")),
        ("https://u:p@q@x.example/", "https://x.example/", Login("u", "p@q")),
        ("https://@x.example/", "https://x.example/", None),
        ("https://x.example/a@b", "https://x.example/a@b", None),
        ("/folder/with@sign", "/folder/with@sign", None),
        ("", "", None),
    ],
)
def test_a_login_is_taken_out_where_an_address_comes_in(url: str, plain: str, login: Login | None) -> None:
    assert addresses.parted(url) == (plain, login)
    assert addresses.plain(url) == plain
    if login and plain.startswith("http"):
        assert addresses.remembered(plain) == login
        assert addresses.parted(addresses.with_login(plain, login)) == (plain, login)


def test_a_login_is_never_shown() -> None:
    assert "p4ss" not in repr(Login("anna", "p4ss"))
    assert "anna" not in repr(Login("anna", "p4ss"))


def test_an_archive_cannot_hold_one() -> None:
    """Whoever makes it, from whatever: it goes into locks, markers and reports."""
    archive = Archive(
        kind="wheel", name="a", version="1", file="a.whl", sha256="", url="https://u:p4ss@x.example/a.whl"
    )
    assert archive.url == "https://x.example/a.whl"
    assert addresses.remembered(archive.url) == Login("u", "p4ss")


def test_of_two_logins_on_a_server_the_nearer_one() -> None:
    addresses.plain("https://one:1@x.example/team-a/simple")
    addresses.plain("https://two:2@x.example/team-b/simple")
    assert addresses.remembered("https://x.example/team-b/files/a.whl") == Login("two", "2")
    assert addresses.remembered("https://x.example:444/team-b/simple") is None
    assert addresses.remembered("http://x.example/team-b/simple") is None
    assert addresses.remembered("https://y.example/team-b/simple") is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.example/a/b-1.0.whl", "b-1.0.whl"),
        ("https://x.example/a/b%2B1.whl?x=/y#sha256=1", "b+1.whl"),
        ("https://x.example/a/..%2F..%2Fb.whl", "b.whl"),
        ("https://x.example/a/..%5C..%5Cb.whl", "b.whl"),
        ("https://x.example/%2Fetc%2Fpasswd", "passwd"),
        ("plain.tar.gz", "plain.tar.gz"),
    ],
)
def test_what_a_server_calls_a_file_is_never_a_path(url: str, name: str) -> None:
    assert addresses.file_name(url) == name


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/",
        "https://x.example",
        "https://x.example/a/..",
        "https://x.example/a/%2e%2e",
        "https://x.example/a/b%00.whl",
        "https://x.example/a/b%0A.whl",
        "https://x.example/a/%1b[2J",
        "https://x.example/" + "a" * 300,
        "http://[::1/b.whl",
        "http://x.example:99999999/b.whl",
    ],
)
def test_names_that_no_file_can_have(url: str) -> None:
    with pytest.raises(NetworkError):
        addresses.file_name(url)
