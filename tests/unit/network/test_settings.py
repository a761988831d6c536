"""pip's and uv's configuration, as they read it themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuwheel.network import settings
from cuwheel.network.addresses import Login
from cuwheel.network.settings import Index
from tests.fixtures import systems


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user without any configuration, on a machine whose own is not looked at."""
    monkeypatch.setattr(settings, "_pip_prefixes", lambda _environ: [])
    monkeypatch.chdir(tmp_path)
    real = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, **options: "" if self == Path("/etc/pip.conf") else real(self, **options)
    )
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg"), "PATH": str(tmp_path)}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestPip:
    def test_nothing(self, environ: dict[str, str]) -> None:
        found = settings.read_pip_settings(environ)
        assert (found.chooses, found.public, found.certificates, found.proxies) == (False, True, (), ())

    @systems.LINUX_PATHS
    def test_files_and_variables_in_their_order(self, environ: dict[str, str], tmp_path: Path) -> None:
        write(tmp_path / "xdg/pip/pip.conf", "[global]\nindex-url = https://g/simple\ntimeout = 3\n")
        assert [each.url for each in settings.read_pip_settings(environ).indexes] == ["https://g/simple"]
        write(tmp_path / ".pip/pip.conf", "[global]\nindex-url = https://legacy/simple\n")
        write(tmp_path / ".config/pip/pip.conf", "[global]\nindex_url = https://user/simple\n")
        assert [each.url for each in settings.read_pip_settings(environ).indexes] == ["https://user/simple"]
        named = write(tmp_path / "named.conf", "[install]\nindex-url = https://named/simple\n")
        environ["PIP_CONFIG_FILE"] = str(named)
        assert [each.url for each in settings.read_pip_settings(environ).indexes] == ["https://named/simple"]
        environ["PIP_INDEX_URL"] = "https://variable/simple"
        assert [each.url for each in settings.read_pip_settings(environ).indexes] == ["https://variable/simple"]
        environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": ""}
        assert settings.read_pip_settings(environ).indexes == ()

    @systems.LINUX_PATHS
    def test_of_an_environment(self, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        write(tmp_path / "venv/pip.conf", "[global]\nindex-url = https://site/simple\n")
        environ["VIRTUAL_ENV"] = str(tmp_path / "venv")
        assert settings.read_pip_settings(environ).indexes[0].url == "https://site/simple"

    @systems.LINUX_PATHS
    def test_all_that_matters(self, environ: dict[str, str], tmp_path: Path) -> None:
        write(
            tmp_path / ".config/pip/pip.conf",
            """[global]
index-url = https://anna:s%40cret@one/simple
extra-index-url =
    https://two/simple
    https://three/simple
find-links = /wheels https://links/
trusted-host = one:8443
    two
cert = /ca.pem
client-cert = /me.pem
proxy = proxy:3128
keyring-provider = disabled
""",
        )
        found = settings.read_pip_settings(environ)
        assert found.indexes[0] == Index(url="https://one/simple", login=Login("anna", "s@cret"))
        assert [each.url for each in found.indexes[1:]] == ["https://two/simple", "https://three/simple"]
        assert found.find_links == ("/wheels", "https://links/")
        assert found.trusted_hosts == ("one:8443", "two")
        assert (found.certificates, found.client_certificate) == (("/ca.pem",), "/me.pem")
        assert dict(found.proxies)["https"] == "proxy:3128"
        assert (found.keyring, found.public) == (False, False)

    def test_no_index(self, environ: dict[str, str]) -> None:
        environ |= {"PIP_NO_INDEX": "true", "PIP_INDEX_URL": "https://x/simple", "PIP_FIND_LINKS": "/wheels"}
        found = settings.read_pip_settings(environ)
        assert (found.no_index, found.indexes, found.chooses, found.public) == (True, (), True, False)

    def test_a_file_that_cannot_be_read_is_none(self, environ: dict[str, str], tmp_path: Path) -> None:
        for text in ("no section", "[global]\nindex-url = a\nindex-url = b\n", "\0\1"):
            write(tmp_path / ".config/pip/pip.conf", text)
            assert settings.read_pip_settings(environ).indexes == ()
        (tmp_path / ".config/pip/pip.conf").write_bytes(b"\xff\xfe[global]")
        assert settings.read_pip_settings(environ).indexes == ()

    def test_other_certificates(self, environ: dict[str, str]) -> None:
        assert settings.read_pip_settings(environ | {"REQUESTS_CA_BUNDLE": "/r.pem"}).certificates == ("/r.pem",)
        assert settings.read_pip_settings(environ | {"CURL_CA_BUNDLE": "/c.pem"}).certificates == ("/c.pem",)
        both = environ | {"REQUESTS_CA_BUNDLE": "/r.pem", "PIP_CERT": "/p.pem"}
        assert settings.read_pip_settings(both).certificates == ("/p.pem",)


class TestUv:
    def test_variables(self, environ: dict[str, str], tmp_path: Path) -> None:
        environ |= {
            "UV_INDEX": "ours=https://ours/simple https://two/simple",
            "UV_DEFAULT_INDEX": "https://anna:p@main/simple",
            "UV_INDEX_OURS_USERNAME": "bert",
            "UV_INDEX_OURS_PASSWORD": "q",
            "UV_FIND_LINKS": "/a,/b",
            "UV_INSECURE_HOST": "one two:8443",
            "UV_KEYRING_PROVIDER": "subprocess",
            "SSL_CERT_FILE": "/ca.pem",
            "SSL_CLIENT_CERT": "/me.pem",
        }
        found = settings.read_uv_settings(environ, tmp_path)
        assert [(each.url, each.login) for each in found.indexes] == [
            ("https://ours/simple", Login("bert", "q")),
            ("https://two/simple", None),
            ("https://main/simple", Login("anna", "p")),
        ]
        assert (found.public, found.keyring, found.find_links) == (False, True, ("/a", "/b"))
        assert (found.certificates, found.client_certificate) == (("/ca.pem",), "/me.pem")
        assert found.trusted_hosts == ("one", "two:8443")

    def test_files(self, environ: dict[str, str], tmp_path: Path) -> None:
        write(
            tmp_path / ".config/uv/uv.toml",
            'extra-index-url = ["https://user/simple"]\nkeyring-provider = "subprocess"\n',
        )
        write(
            tmp_path / "project/pyproject.toml",
            '[[tool.uv.index]]\nname = "our.own"\nurl = "https://project/simple"\ndefault = true\n'
            '[tool.uv.pip]\nfind-links = ["/wheels"]\n',
        )
        environ |= {"UV_INDEX_OUR_OWN_USERNAME": "anna", "UV_INDEX_OUR_OWN_PASSWORD": "p"}
        found = settings.read_uv_settings(environ, tmp_path / "project" / "deep")
        assert [each.url for each in found.indexes] == ["https://project/simple", "https://user/simple"]
        assert found.indexes[0].login == Login("anna", "p")
        assert (found.public, found.keyring, found.find_links) == (False, True, ("/wheels",))
        assert not settings.read_uv_settings(environ | {"UV_NO_CONFIG": "1"}, tmp_path / "project").chooses
        named = write(tmp_path / "named.toml", 'index-url = "https://named/simple"\n')
        only = settings.read_uv_settings(environ | {"UV_CONFIG_FILE": str(named)}, tmp_path / "project")
        assert [each.url for each in only.indexes] == ["https://named/simple"]

    @pytest.mark.parametrize("text", ["[", "index = 3", 'index = [1, {}, {url = 2}]\npip = "x"', "no-index = 1", "\0"])
    def test_files_that_say_nothing(self, text: str, environ: dict[str, str], tmp_path: Path) -> None:
        write(tmp_path / "uv.toml", text)
        assert not settings.read_uv_settings(environ, tmp_path).chooses


class TestTogether:
    def test_uv_is_handed_what_only_pip_has(self, environ: dict[str, str]) -> None:
        environ |= {
            "PIP_INDEX_URL": "https://anna:p%2Fq@one/simple",
            "PIP_EXTRA_INDEX_URL": "https://two/simple",
            "PIP_FIND_LINKS": "/a /b",
            "PIP_CERT": "/ca.pem",
            "PIP_CLIENT_CERT": "/me.pem",
            "PIP_PROXY": "proxy:3128",
            "PIP_TRUSTED_HOST": "one",
        }
        given, options = settings.settings_for_uv(settings.read_settings(environ))
        assert options == []
        assert {name: value for name, value in given.items() if name not in environ} == {
            "UV_DEFAULT_INDEX": "https://anna:p%2Fq@one/simple",
            "UV_INDEX": "https://two/simple",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_FIND_LINKS": "/a,/b",
            "UV_INSECURE_HOST": "one",
            "SSL_CERT_FILE": "/ca.pem",
            "SSL_CLIENT_CERT": "/me.pem",
            "HTTP_PROXY": "http://proxy:3128",
            "HTTPS_PROXY": "http://proxy:3128",
        }
        assert settings.settings_for_uv(settings.read_settings(environ | {"PIP_NO_INDEX": "1"})).options == [
            "--no-index"
        ]

    def test_what_uv_has_itself_stays(self, environ: dict[str, str]) -> None:
        environ |= {"PIP_INDEX_URL": "https://pip/simple", "UV_DEFAULT_INDEX": "https://uv/simple"}
        assert settings.settings_for_uv(settings.read_settings(environ)).environ == environ

    @pytest.mark.parametrize(
        ("variables", "url", "proxy"),
        [
            ({}, "https://x.example/", None),
            ({"HTTPS_PROXY": "http://p:1"}, "https://x.example/", "http://p:1"),
            ({"https_proxy": "p:1"}, "https://x.example/", "http://p:1"),
            ({"HTTPS_PROXY": "http://p:1"}, "http://x.example/", None),
            ({"ALL_PROXY": "http://p:1"}, "http://x.example/", "http://p:1"),
            ({"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "http://x.example/", None),
            ({"PIP_PROXY": "q:2", "HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://x.example/", "http://q:2"),
        ],
    )
    def test_proxies(self, variables: dict[str, str], url: str, proxy: str | None, environ: dict[str, str]) -> None:
        assert settings.read_settings(environ | variables).proxy(url) == proxy

    @pytest.mark.parametrize(
        ("excepted", "host", "is_excepted"),
        [
            ("*", "x.example", True),
            ("x.example", "x.example", True),
            (".example", "x.example", True),
            ("example", "x.example", True),
            ("*.example", "x.example", True),
            ("ample", "x.example", False),
            ("a, x.example", "x.example", True),
            ("x.example:443", "x.example", True),
            ("x.example:80", "x.example", False),
            ("10.0.0.0/8", "10.1.2.3", True),
            ("10.0.0.0/8", "11.1.2.3", False),
            ("::1", "[::1]", True),
            ("", "x.example", False),
        ],
    )
    def test_what_no_proxy_excepts(
        self, excepted: str, host: str, *, is_excepted: bool, environ: dict[str, str]
    ) -> None:
        found = settings.read_settings(environ | {"HTTPS_PROXY": "http://p:1", "NO_PROXY": excepted})
        assert (found.proxy(f"https://{host}/") is None) is is_excepted

    def test_hosts_that_are_trusted(self, environ: dict[str, str]) -> None:
        found = settings.read_settings(environ | {"PIP_TRUSTED_HOST": "One.example two.example:8443"})
        assert found.is_trusted("https://one.example/simple")
        assert found.is_trusted("https://two.example:8443/")
        assert not found.is_trusted("https://two.example/")
        assert not found.is_trusted("https://x.one.example/")
