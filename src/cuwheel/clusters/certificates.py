"""Who may belong to a cluster: an authority of its own, and a file with key and certificate for each part.

Any of these files lets its owner run programs on all workers: they are secrets.
"""

from __future__ import annotations

import os
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cuwheel.errors import MalformedError, UnreadableError, UsageError
from cuwheel.support import extras, files, system_calls

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

Role: TypeAlias = Literal["client", "scheduler", "worker"]
ROLES: tuple[Role, ...] = ("client", "scheduler", "worker")
FOLDER = "CUWHEEL_CLUSTER"
_AUTHORITY = "authority-key.pem"
_DAYS = 825
_HINT = "make them with: cuwheel cluster init"


def folder(given: Path | None = None) -> Path:
    """Where this user keeps them: the folder given, else $CUWHEEL_CLUSTER, else the user's configuration."""
    if given is None and (named := os.environ.get(FOLDER)):
        given = Path(named)
    if given is None:
        from platformdirs import user_config_path

        given = user_config_path("cuwheel") / "cluster"
    return given.absolute()


def require() -> None:
    extras.require("the cluster", modules=["distributed", "cryptography"], extra="cluster")


def make(to: Path, days: int = _DAYS) -> tuple[Path, ...]:
    """A new authority and a file for each role. Nothing that is there is written over."""
    require()
    places = {role: to / f"{role}.pem" for role in ROLES}
    if there := [path for path in (to / _AUTHORITY, *places.values()) if path.exists()]:
        raise UsageError(
            f"{there[0]} is there already, and workers may have been given its kind",
            hint="choose another folder with -o, or remove the old files first",
        )
    try:
        to.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UnreadableError.from_os(error, to) from error
    key, certificate = _authority(days)
    _write(to / _AUTHORITY, _key_text(key))
    for role, place in places.items():
        own_key, own = _signed(role, key, certificate, days)
        _write(place, _key_text(own_key) + _text(own) + _text(certificate))
    return (to / _AUTHORITY, *places.values())


def security(role: Role, given: Path | None = None) -> Any:  # noqa: ANN401 - distributed is not typed
    """For Dask: everything encrypted, both sides known by the authority. `given`: the file, or the folder of them."""
    require()
    from distributed.security import Security

    place = folder(given)
    file = place / f"{role}.pem" if place.is_dir() or not place.exists() else place
    if not file.is_file():
        raise UnreadableError(file, "there is no certificate for a cluster", hint=_HINT)
    _must_be_one(file)
    return Security(
        require_encryption=True,
        tls_ca_file=str(file),
        **{f"tls_{each}_{part}": str(file) for each in ROLES for part in ("cert", "key")},
    )


def _must_be_one(file: Path) -> None:
    """Said here: in the middle of a connection nobody would know which file is meant."""
    try:
        context = ssl.create_default_context(cafile=str(file))
        context.load_cert_chain(file)
    except ssl.SSLError as error:
        problem = f"is not a file with key and certificate for a cluster: {error.reason or error}"
        raise MalformedError(file, problem, hint=_HINT) from error
    except OSError as error:
        raise UnreadableError.from_os(error, file) from error


def _authority(days: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("cuwheel cluster authority")
    now = datetime.now(timezone.utc)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, made.sign(key, hashes.SHA256())


def _signed(
    role: Role, key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, days: int
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    own = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(timezone.utc)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # every part of Dask listens and calls
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(f"cuwheel {role}"))
        .issuer_name(authority.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return own, made.sign(key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())


def _text(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write(path: Path, text: bytes) -> None:
    """For its owner alone from the first byte on."""
    try:
        handle = system_calls.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    files.sync_file(path)
