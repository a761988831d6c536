"""Attestations of a wheel (PEP 740): made where the machine has an identity, and carried into an index.

What a signing service vouches for is not verified here: whoever relies on it does that, with its keys. What is checked
is that an attestation has the standard's form and is about this very file.
"""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from cuwheel.delivery.simple_api import PROVENANCE
from cuwheel.errors import ToolError
from cuwheel.facts import services
from cuwheel.support import codec, extras, process
from cuwheel.support.files import chunks
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
ATTESTATION = ".publish.attestation"  # what `pypi-attestations sign` writes beside a file
LARGEST = 8 << 20
_PROGRAM = "pypi-attestations"
_TIMEOUT_S = 600.0
_STATEMENT = "https://in-toto.io/Statement/v1"
_VERSION = 1


class Material(Struct, frozen=True):
    certificate: str
    transparency_entries: tuple[dict[str, Any], ...]


class Envelope(Struct, frozen=True):
    statement: str
    signature: str


class Attestation(Struct, frozen=True):
    version: int
    verification_material: Material
    envelope: Envelope


class Bundle(Struct, frozen=True):
    publisher: dict[str, Any]
    attestations: tuple[Attestation, ...]


class Provenance(Struct, frozen=True):
    version: int
    attestation_bundles: tuple[Bundle, ...]


class _Subject(Struct, frozen=True):
    name: str
    digest: dict[str, str]


class _Statement(Struct, frozen=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    type: str
    subject: tuple[_Subject, ...]
    predicate_type: str


class _WrongError(ValueError):
    """What is wrong with one."""


def beside(wheel: Path, sha256: str) -> tuple[bytes, Finding | None]:
    """The provenance of a wheel, made of what lies beside it; empty where there is nothing, or where that is wrong."""
    for suffix, read in ((PROVENANCE, _provenance), (ATTESTATION, _wrapped)):
        path = wheel.with_name(wheel.name + suffix)
        if path.is_file():
            try:
                made = read(_content(path))
                must_be_about(made, wheel.name, sha256)
            except _WrongError as error:
                return b"", _wrong(path.name, str(error))
            return codec.encode(made) + b"\n", None
    return b"", None


def problem(data: bytes, file: str, sha256: str) -> str:
    """What is wrong with a file of provenance in an index; empty where nothing is."""
    try:
        must_be_about(_provenance(data), file, sha256)
    except _WrongError as error:
        return str(error)
    return ""


def must_be_about(provenance: Provenance, file: str, sha256: str) -> None:
    if provenance.version != _VERSION or not provenance.attestation_bundles:
        raise _WrongError(f"it has no attestations of version {_VERSION}")
    for bundle in provenance.attestation_bundles:
        if not bundle.attestations or not isinstance(bundle.publisher.get("kind"), str):
            raise _WrongError("a bundle of attestations does not name its publisher, or has none")
        for each in bundle.attestations:
            _must_be_about(each, file, sha256)


def _must_be_about(attestation: Attestation, file: str, sha256: str) -> None:
    if attestation.version != _VERSION:
        raise _WrongError(f"an attestation is of version {attestation.version}, and {_VERSION} is known")
    _bytes(attestation.verification_material.certificate, "certificate")
    _bytes(attestation.envelope.signature, "signature")
    statement = _decoded(_bytes(attestation.envelope.statement, "statement"), _Statement)
    if statement.type != _STATEMENT or len(statement.subject) != 1:
        raise _WrongError("its statement is not an in-toto statement about one file")
    (subject,) = statement.subject
    if subject.name != file:
        raise _WrongError(f"it is about {subject.name[:200]!r}")
    if subject.digest.get("sha256") != sha256:
        raise _WrongError("it is about a file of this name with other content")


def _content(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise _WrongError(f"it is too large: more than {LARGEST:,} bytes")
    return b"".join(chunks(path))


def _provenance(data: bytes) -> Provenance:
    return _decoded(data, Provenance)


def _wrapped(data: bytes) -> Provenance:
    """A single attestation. Whose it is stands in its certificate."""
    made = _decoded(data, Attestation)
    certificate = _bytes(made.verification_material.certificate, "certificate")
    for identity in services.upload_identities():
        if found := re.search(identity.pattern.encode(), certificate):
            claims = {name: value.decode() for name, value in found.groupdict().items()}
            bundle = Bundle(publisher={"kind": identity.kind, **claims}, attestations=(made,))
            return Provenance(version=_VERSION, attestation_bundles=(bundle,))
    known = ", ".join(each.kind for each in services.upload_identities())
    raise _WrongError(f"its certificate does not name an identity that is known ({known})")


def _decoded(data: bytes, type_: type[T]) -> T:
    try:
        return codec.decode(data, type_)
    except msgspec.DecodeError as error:
        raise _WrongError(f"it does not have the form of PEP 740: {error}") from error


def _bytes(text: str, what: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise _WrongError(f"its {what} is not base64")
    return data


def _wrong(name: str, problem: str) -> Finding:
    return Finding(
        rule="attestation-wrong",
        severity="error",
        message=f"{name}: {problem}",
        fix="attest the wheel as it is now, or remove the file beside it",
    )


def make(wheels: Sequence[Path], environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """An attestation beside each wheel that has none; why there is none is said, and nothing fails."""
    missing = [
        each
        for each in wheels
        if not any(each.with_name(each.name + suffix).exists() for suffix in (PROVENANCE, ATTESTATION))
    ]
    known = [each.variable for each in services.upload_identities()]
    if not any(map(environ.get, known)):
        yield Finding(
            rule="attestation-no-identity",
            severity="warning",
            message="no attestations were made: this machine has no identity that a signing service knows",
            evidence=tuple(f"{each} is not set" for each in dict.fromkeys(known)),
            fix="attest in a CI job that may ask for an identity token (GitHub: permissions: id-token: write)",
        )
        return
    program = extras.needed(_PROGRAM, "attesting a wheel", "attest")
    done = process.run((program, "sign", *missing), timeout=_TIMEOUT_S, check=False) if missing else None
    if done and done.status != 0:
        raise ToolError([_PROGRAM], "could not attest the wheels", done.stderr, hint="publish without --attest")
