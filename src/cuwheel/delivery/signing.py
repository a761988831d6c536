"""OpenSSH signatures of SHA256SUMS: made and verified by `ssh-keygen -Y`, and demanded of what is installed."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel import files, process
from cuwheel.delivery import index_folder, layout, site
from cuwheel.errors import ToolError
from cuwheel.network import addresses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.resolver import Release

NAMESPACE = "cuwheel-index"  # a signature made for another purpose does not count
LARGEST = 1 << 16
_PROGRAM = "ssh-keygen"
_TIMEOUT_S = 60.0
_BLOCK = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]{1,16384}-----END SSH SIGNATURE-----\n?")
_MOST = 4
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


def problem_of(releases: Sequence[Release], indexes: Sequence[str], signers: Path) -> str:
    """Which file is in no index that one of the signers signed, and why; empty where all are."""
    if not releases:
        return ""
    listed: set[str] = set()
    reasons = []
    for index in indexes:
        found, reason = _listed(index, signers)
        listed |= found
        reasons += [f"{addresses.plain(index)}: {reason}"] if reason else []
    strangers = [each for each in releases if _sha256(each) not in listed]
    if not strangers:
        return ""
    more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{strangers[0].file}{more} is in no index that is signed by any of {signers}{why}"


def _sha256(release: Release) -> str | None:
    local = addresses.local_path(release.url)
    return release.sha256 or (files.sha256(local) if local and local.is_file() else None)


def _listed(index: str, signers: Path) -> tuple[set[str], str]:
    """The hashes in the list that the index signs, or why it is not believed."""
    base = index.rstrip("/").removesuffix(f"/{layout.SIMPLE}")
    for place in (base, base.rpartition("/")[0])[:_MAIN_OF_CHANNEL]:
        found = site.of(place)
        sums, signature = found.read(layout.SUMS), found.read(layout.SIGNATURE)
        if sums is None:
            continue
        if signature is None:
            return set(), "the index is not signed"
        if wrong := verify(sums, signature, signers).problem:
            return set(), wrong
        return set(index_folder.sums(sums).values()), ""
    return set(), f"it has no {layout.SUMS}"
