"""Who vouches for what is published: OpenSSH signatures of an index's SHA256SUMS, and attestations of its wheels.

Signatures are made and verified by `ssh-keygen -Y`, and demanded of what is installed.
"""

from __future__ import annotations

import binascii
import os
import re
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from cuwheel.delivery import candidates, index_folder
from cuwheel.delivery.simple_api import FACTS, PROVENANCE, SIMPLE
from cuwheel.errors import ToolError
from cuwheel.facts import services
from cuwheel.network import addresses
from cuwheel.support import codec, files, process
from cuwheel.support.files import chunks
from cuwheel.support.finding import finding
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from cuwheel.delivery.candidates import Candidate
    from cuwheel.network.resolver import Release
    from cuwheel_core.support.finding import Finding


NAMESPACE = "cuwheel-index"  # a signature made for another purpose does not count
LARGEST = 1 << 16
_PROGRAM = "ssh-keygen"
_TIMEOUT_S = 60.0
_BLOCK = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]{1,16384}-----END SSH SIGNATURE-----\n?")
_MOST = 4
_LONGEST_NUMBER = 32
_MAIN_OF_CHANNEL = 2  # places above a simple index: that of its channel is one below the index's


class Signature(Struct, frozen=True, kw_only=True):
    """`signer`: as the list of signers names them; empty where there is a `problem`."""

    signer: str = ""
    problem: str = ""


def sign(key: Path, data: bytes) -> bytes:
    """`key`: a private key, or a public one whose private half an agent has."""
    with tempfile.TemporaryDirectory(prefix="cuwheel-sign-") as folder:
        message = Path(folder, "message")
        message.write_bytes(data)
        words = (_needed("signing"), "-Y", "sign", "-f", key.absolute(), "-n", NAMESPACE, message)
        done = process.run(words, timeout=_TIMEOUT_S, check=False)
        made = message.with_suffix(".sig")
        if done.status != 0 or not made.exists():
            hint = "give an OpenSSH key; one with a passphrase is added to the agent first: ssh-add KEY"
            raise ToolError([_PROGRAM], f"could not sign with {key}", done.stderr, hint)
        return made.read_bytes()


def verify(data: bytes, signature: bytes, signers: Path) -> Signature:
    """Whether one of the signatures is of this content and by one of the signers (man ssh-keygen, ALLOWED SIGNERS)."""
    blocks = _BLOCK.findall(signature[:LARGEST])[:_MOST]
    if not blocks:
        return Signature(problem="it is not an OpenSSH signature")
    with tempfile.TemporaryDirectory(prefix="cuwheel-sign-") as folder:
        message = Path(folder, "message")
        message.write_bytes(data)
        found = [_verified(message, block, signers) for block in blocks]
    return next((each for each in found if each.signer), found[0])


def _verified(message: Path, block: bytes, signers: Path) -> Signature:
    path, program = message.with_suffix(".sig"), _needed("checking a signature")
    path.write_bytes(block)
    asked = (program, "-Y", "find-principals", "-s", path, "-f", signers.absolute())
    found = process.run(asked, timeout=_TIMEOUT_S, check=False)
    signer = found.stdout.partition("\n")[0].strip() if found.status == 0 else ""
    if not signer:
        return Signature(problem=f"it was not made by any of the signers in {signers}")
    words = (program, "-Y", "verify", "-s", path, "-f", signers.absolute(), "-I", signer, "-n", NAMESPACE)
    done = process.run(words, timeout=_TIMEOUT_S, check=False, given=message)
    if done.status != 0:
        return Signature(problem=f"it is by {signer}, but not of this content, or not made for a package index")
    return Signature(signer=signer)


def _needed(purpose: str) -> str:
    found = shutil.which(_PROGRAM)
    if found is None:
        raise ToolError([_PROGRAM], f"is not installed, and {purpose} needs it", hint="apt install openssh-client")
    return found


def problem_of_origin(
    releases: Sequence[Release], indexes: Sequence[str], signers: Path, listed: Sequence[Candidate] = ()
) -> str:
    """Why not all of these are from an index that one of the signers signed, as it was signed; empty where they are.

    `listed`: all that the choice was made from. What is signed tells of files that an index hides, of facts that were
    changed, and by its number of an older state of the index.
    """
    if not releases:
        return ""
    hashes: set[str] = set()
    reasons = []
    for index in indexes:
        found = _signed(index, signers)
        if not found.problem:
            hashes |= set(found.sums.values())
            projects = {normalised(each.name) for each in releases if _sha256(each) in hashes}
            own = [each for each in listed if each.index == index]
            if wrong := _older(found) or _changed(found, own) or _hidden(found, projects):
                return f"{addresses.plain(index)}: {wrong}"
        reasons += [f"{addresses.plain(index)}: {found.problem}"] if found.problem else []
    strangers = [each for each in releases if _sha256(each) not in hashes]
    if not strangers:
        return ""
    more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{strangers[0].file}{more} is in no index that is signed by any of {signers}{why}"


def _sha256(release: Release) -> str | None:
    local = addresses.local_path(release.url)
    return release.sha256 or (files.sha256(local) if local and local.is_file() else None)


class _Signed(Struct, frozen=True, kw_only=True):
    """The list that an index signs, by path; `problem`: why it is not believed. `place`: of the whole index."""

    place: str = ""
    sums: dict[str, str] = {}
    serial: int = 0
    problem: str = ""


def _signed(index: str, signers: Path) -> _Signed:
    base = index.rstrip("/").removesuffix(f"/{SIMPLE}")
    for place in (base, base.rpartition("/")[0])[:_MAIN_OF_CHANNEL]:
        found = index_folder.open_site(place)
        sums, signature = found.read(index_folder.SUMS), found.read(index_folder.SIGNATURE)
        if sums is None:
            continue
        if signature is None:
            return _Signed(problem="the index is not signed")
        if wrong := verify(sums, signature, signers).problem:
            return _Signed(problem=wrong)
        return _Signed(place=place, sums=index_folder.parse_sums(sums), serial=index_folder.serial(sums)[0])
    return _Signed(problem=f"it has no {index_folder.SUMS}")


def _older(found: _Signed) -> str:
    """Whether this machine has seen a later state of the index; the latest is remembered."""
    folder = files.cache_folder() / "signed-indexes"
    place = folder / files.sha256_of(found.place.encode())
    known = files.read_if_present(place, _LONGEST_NUMBER, "the number of an index") or b"0"
    seen = bounded.whole(known.decode("ascii", "replace")) or 0
    if found.serial < seen:
        return (
            f"it is at {found.serial}, and this machine has seen it at {seen}: an older state of it is shown "
            f"(if it was made anew on purpose, remove {place})"
        )
    if found.serial > seen:
        folder.mkdir(parents=True, exist_ok=True)
        files.write(place, str(found.serial).encode())
    return ""


def _changed(found: _Signed, listed: Sequence[Candidate]) -> str:
    for each in listed:
        path = index_folder.file_path(each.file) + FACTS
        if each.listing.facts and each.listing.facts != found.sums.get(path):
            return f"the facts of {each.file} are not those that were signed"
        known = found.sums.get(index_folder.file_path(each.file))
        if each.listing.sha256 and known != each.listing.sha256:
            return f"{each.file} is not the file that was signed"
    return ""


def _hidden(found: _Signed, projects: Collection[str]) -> str:
    """A release that was signed and that its page does not list: of an older one, nobody would know."""
    names = [path.removeprefix(f"{index_folder.FILES}/") for path in found.sums]
    for project in projects:
        wanted = {each for each in names if (name := WheelName.parse(each)) and name.project == project}
        listed = {each.file for each in candidates.files_of(f"{found.place}/{SIMPLE}", project)}
        if missing := sorted(wanted - listed):
            return f"{missing[0]} was signed, and the index does not list it: a release is hidden"
    return ""


# Attestations of a wheel (PEP 740): made where the machine has an identity, and carried into an index.
# What a signing service vouches for is not verified here: whoever relies on it does that, with its keys. What is
# checked is that an attestation has the standard's form and is about this very file.

T = TypeVar("T")
ATTESTATION = ".publish.attestation"  # what `pypi-attestations sign` writes beside a file
LARGEST_PROVENANCE = 8 << 20
_ATTESTER = "pypi-attestations"
_ATTEST_S = 600.0
_STATEMENT = "https://in-toto.io/Statement/v1"
_ATTESTATION_VERSION = 1


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


def read_provenance(wheel: Path, sha256: str) -> tuple[bytes, Finding | None]:
    """The provenance of a wheel, made of what lies beside it; empty where there is nothing, or where that is wrong."""
    for suffix, read in ((PROVENANCE, _provenance), (ATTESTATION, _wrapped)):
        path = wheel.with_name(wheel.name + suffix)
        if path.is_file():
            try:
                made = read(_content(path))
                must_be_about(made, wheel.name, sha256)
            except _WrongError as error:
                return b"", finding("attestation-wrong", f"{path.name}: {error}")
            return codec.encode(made) + b"\n", None
    return b"", None


def problem_of_provenance(data: bytes, file: str, sha256: str) -> str:
    """What is wrong with a file of provenance in an index; empty where nothing is."""
    try:
        must_be_about(_provenance(data), file, sha256)
    except _WrongError as error:
        return str(error)
    return ""


def must_be_about(provenance: Provenance, file: str, sha256: str) -> None:
    if provenance.version != _ATTESTATION_VERSION or not provenance.attestation_bundles:
        raise _WrongError(f"it has no attestations of version {_ATTESTATION_VERSION}")
    for bundle in provenance.attestation_bundles:
        if not bundle.attestations or not isinstance(bundle.publisher.get("kind"), str):
            raise _WrongError("a bundle of attestations does not name its publisher, or has none")
        for each in bundle.attestations:
            if each.version != _ATTESTATION_VERSION:
                raise _WrongError(f"an attestation is of version {each.version}, and {_ATTESTATION_VERSION} is known")
            _bytes(each.verification_material.certificate, "certificate")
            _bytes(each.envelope.signature, "signature")
            statement = _decoded(_bytes(each.envelope.statement, "statement"), _Statement)
            if statement.type != _STATEMENT or len(statement.subject) != 1:
                raise _WrongError("its statement is not an in-toto statement about one file")
            (subject,) = statement.subject
            if subject.name != file:
                raise _WrongError(f"it is about {subject.name[:200]!r}")
            if subject.digest.get("sha256") != sha256:
                raise _WrongError("it is about a file of this name with other content")


def _content(path: Path) -> bytes:
    if path.stat().st_size > LARGEST_PROVENANCE:
        raise _WrongError(f"it is too large: more than {LARGEST_PROVENANCE:,} bytes")
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
            return Provenance(version=_ATTESTATION_VERSION, attestation_bundles=(bundle,))
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


def make_attestations(wheels: Sequence[Path], environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """An attestation beside each wheel that has none; why there is none is said, and nothing fails."""
    missing = [
        each
        for each in wheels
        if not any(each.with_name(each.name + suffix).exists() for suffix in (PROVENANCE, ATTESTATION))
    ]
    known = [each.variable for each in services.upload_identities()]
    if not any(map(environ.get, known)):
        yield finding(
            "attestation-no-identity",
            "no attestations were made: this machine has no identity that a signing service knows",
            evidence=tuple(f"{each} is not set" for each in dict.fromkeys(known)),
        )
        return
    program = process.needed_program(_ATTESTER, "attesting a wheel", "attest")
    done = process.run((program, "sign", *missing), timeout=_ATTEST_S, check=False) if missing else None
    if done and done.status != 0:
        raise ToolError([_ATTESTER], "could not attest the wheels", done.stderr, hint="publish without --attest")
