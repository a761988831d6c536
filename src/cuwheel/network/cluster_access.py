"""Which cluster, and who may belong to it: its address, its authority, and a certificate for each part."""

from __future__ import annotations

import ipaddress
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.support import files, process
from cuwheel.support.answer import Answer
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import bounded, opening

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec


# Which cluster: one that runs at an address, this machine, or one that Slurm starts.
#
# Who reaches a cluster can run programs as the one who started it, and every user of a machine reaches its loopback: so
# all addresses need TLS, unless somebody says `insecure+tcp` of one on this machine.

Kind: TypeAlias = Literal["address", "local", "slurm"]
_ADDRESSES = "tls://HOST:8786, local, local:4, slurm or slurm:20"
_INSECURE = "insecure+tcp"
_MOST = 10_000
_SHOWN = 60


class Target(Struct, frozen=True, kw_only=True):
    """`workers`: how many to start, where that is ours to do; 0: as many as there are cores for."""

    kind: Kind
    address: str = ""
    workers: int = 0

    @property
    def secured(self) -> bool:
        return not self.address.startswith("tcp://")


def parse_address(text: str) -> Target:
    """Raises UsageError where it is none of these, or would let others in."""
    name, _, count = text.partition(":")
    if name in ("local", "slurm") and (text == name or (count.isdecimal() and 0 < bounded.digits(count) <= _MOST)):
        return Target(kind="local" if name == "local" else "slurm", workers=bounded.digits(count or "0"))
    return parse_place(text)


def parse_place(text: str, *, listening: bool = False) -> Target:
    """The address of a scheduler. `listening`: of one that is to be started, where port 0 takes any."""
    scheme, _, place = text.partition("://")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    other = scheme not in ("tcp", "tls", _INSECURE) or not text.isprintable() or any(each in place for each in "/@?# ")
    if other or not host or port is None or (port == 0 and not listening):
        raise UsageError(f"{text[:_SHOWN]!r} is not the address of a cluster", hint=_ADDRESSES)
    if scheme == "tls":
        return Target(kind="address", address=text)
    hint = f"tls://{place}, with certificates made by: cuwheel cluster init"
    if not is_loopback(host):
        raise UsageError(
            f"{text}: off this machine a cluster needs TLS, since who reaches it can run programs there", hint=hint
        )
    if scheme == "tcp":
        raise UsageError(
            f"{text}: without TLS every user of this machine can run programs there as the one who started it",
            hint=f"{hint}; where nobody else is on this machine: {_INSECURE}://{place}",
        )
    return Target(kind="address", address=f"tcp://{place}")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Role: TypeAlias = Literal["client", "scheduler", "worker"]
ROLES: tuple[Role, ...] = ("client", "scheduler", "worker")
FOLDER = "CUWHEEL_CLUSTER"
_AUTHORITY = "authority-key.pem"
_DAYS = 825


def certificate_folder(given: Path | None = None) -> Path:
    """Where this user keeps them: the folder given, else $CUWHEEL_CLUSTER, else the user's configuration."""
    if given is None and (named := os.environ.get(FOLDER)):
        given = Path(named)
    if given is None:
        from platformdirs import user_config_path  # noqa: PLC0415 - for those who have a cluster

        given = user_config_path("cuwheel") / "cluster"
    return files.absolute(given)


def require_extra() -> None:
    process.require_extra("the cluster", modules=["distributed", "cryptography"], extra="cluster")


class Certificates(Answer, frozen=True, kw_only=True):
    """Each file but `authority` holds a key, its certificate and the authority's."""

    schema: Literal["cuwheel.certificates/1"] = "cuwheel.certificates/1"
    authority: str
    client: str
    scheduler: str
    worker: str

    @property
    def succeeded(self) -> bool:
        return True


def make_certificates(to: Path) -> Certificates:
    """A new authority and a file for each role. Nothing that is there is written over."""
    require_extra()
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415

    places = {role: to / f"{role}.pem" for role in ROLES}
    if there := [path for path in (to / _AUTHORITY, *places.values()) if path.exists()]:
        raise UsageError(
            f"{there[0]} is there already, and workers may have been given its kind",
            hint=f"choose another folder with {FOLDER}=FOLDER before the command, or remove the old files first",
        )

    def write(path: Path, key: ec.EllipticCurvePrivateKey, *certificates: x509.Certificate) -> None:
        """For its owner alone from the first byte on."""
        with os.fdopen(opening.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            file.write(b"".join(each.public_bytes(Encoding.PEM) for each in certificates))
        files.sync_file(path)

    authority = _certificate("cuwheel cluster authority")
    try:
        to.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(to / _AUTHORITY, authority[0])
        for role, place in places.items():
            write(place, *_certificate(common_name(role), authority), authority[1])
    except OSError as error:
        raise UnreadableError.from_os(error, to) from error
    return Certificates(
        authority=str(to / _AUTHORITY),
        client=str(places["client"]),
        scheduler=str(places["scheduler"]),
        worker=str(places["worker"]),
    )


def common_name(role: Role) -> str:
    """The name in the certificate of a role, by which others know it."""
    return f"cuwheel {role}"


def _certificate(
    name: str,
    issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None = None,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A new key and its certificate, signed by the issuer; without one it is an authority, and signs itself."""
    from cryptography import x509  # noqa: PLC0415 - of an extra, as the others
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, its = (key, subject) if issuer is None else (issuer[0], issuer[1].subject)
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder(issuer_name=its, subject_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None if issuer else 0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if issuer is None:  # whoever checks strictly, as Python does from 3.13 on, wants an authority to say what it signs
        signs = ("key_cert_sign", "crl_sign")
        others = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        usage = dict.fromkeys(signs, True) | dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
        made = made.add_extension(x509.KeyUsage(**usage), critical=True)
    return key, made.sign(signer, hashes.SHA256())
