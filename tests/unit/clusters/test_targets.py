"""Nothing without TLS, on this machine as elsewhere, unless that is said; certificates that only their owner reads."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cuwheel.clusters import service
from cuwheel.errors import UsageError
from cuwheel.network import cluster_access
from cuwheel_core.errors import MalformedError, UnreadableError


@pytest.mark.parametrize(
    "text",
    [
        *("tls://build01:8786", "tls://127.0.0.1:8786", "local", "slurm:20"),
        *(f"insecure+tcp://{host}" for host in ("127.0.0.1:8786", "[::1]:8786", "localhost:1")),
    ],
)
def test_what_is_taken(text: str) -> None:
    found = cluster_access.parse_address(text)
    assert found.secured == (not text.startswith("insecure"))
    assert found.address in ("", text.removeprefix("insecure+"))


@pytest.mark.parametrize("host", ["127.0.0.1:8786", "[::1]:8786", "localhost:1"])
def test_loopback_is_reached_by_every_user_of_the_machine(host: str) -> None:
    with pytest.raises(UsageError, match="without TLS every user of this machine") as caught:
        cluster_access.parse_address(f"tcp://{host}")
    assert f"tls://{host}" in caught.value.hint
    assert f"insecure+tcp://{host}" in caught.value.hint


@pytest.mark.parametrize("place", ["build01:8786", "0.0.0.0:8786", "10.0.0.1:1", "[::]:8786", "127.0.0.1.x:1"])
@pytest.mark.parametrize("scheme", ["tcp", "insecure+tcp"])
def test_an_open_address_needs_tls(scheme: str, place: str) -> None:
    text = f"{scheme}://{place}"
    with pytest.raises(UsageError, match="needs TLS") as caught:
        cluster_access.parse_address(text)
    assert "tls://" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "tls://",
        "tls://a",
        "tls://a:b",
        "tls://a:99999999",
        "ssh://a:1",
        "tls://a:1/x",
        "tls://u@a:1",
        "local:0",
        "slurm:-1",
        "local:1.5",
        "tls://[:1",
        "inproc://a:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="not the address of a cluster"):
        cluster_access.parse_address(text)


def test_certificates_are_for_their_owner_and_never_written_over(tmp_path: Path) -> None:
    named = cluster_access.make_certificates(tmp_path / "cluster")
    made = [Path(each) for each in (named.authority, named.client, named.scheduler, named.worker)]
    assert [path.name for path in made] == ["authority-key.pem", "client.pem", "scheduler.pem", "worker.pem"]
    if os.name == "posix":  # Windows keeps no mode bits
        assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert b"PRIVATE KEY" in made[3].read_bytes()
    before = made[1].read_bytes()
    with pytest.raises(UsageError, match="there already") as caught:
        cluster_access.make_certificates(tmp_path / "cluster")
    assert "CUWHEEL_CLUSTER=FOLDER" in caught.value.hint  # the command has no option for it
    assert made[1].read_bytes() == before


def test_a_certificate_is_of_the_authority_and_cannot_make_others(tmp_path: Path) -> None:
    from cryptography import x509

    client = Path(cluster_access.make_certificates(tmp_path).client)
    own, authority = x509.load_pem_x509_certificates(client.read_bytes())
    own.verify_directly_issued_by(authority)
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign  # strict checks want it


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "worker.pem").write_bytes(content)
    with pytest.raises(MalformedError, match=r"worker\.pem: is not a file with key and certificate") as caught:
        service.tls_security("worker", tmp_path / "worker.pem")
    assert "cluster init" in caught.value.hint


def test_half_of_a_file_is_none(tmp_path: Path) -> None:
    """A key of one, the certificate of another."""
    first, second = (
        Path(cluster_access.make_certificates(tmp_path / name).worker).read_bytes() for name in ("one", "two")
    )
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(first.partition(b"-----BEGIN CERTIFICATE")[0] + second[second.index(b"-----BEGIN CERTIFICATE") :])
    with pytest.raises(MalformedError, match="is not a file with key"):
        service.tls_security("worker", mixed)


def test_without_certificates_there_is_no_secured_cluster(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no certificate") as caught:
        service.tls_security("client", tmp_path / "nowhere")
    assert "cluster init" in caught.value.hint
