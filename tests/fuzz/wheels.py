"""Changes that keep a wheel a wheel: a member, a row of RECORD, a header of METADATA, a field of a library or zip.

An input is the verb's name, a line end, and the wheel.
"""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.fixtures.small_wheel import digest
from tests.fuzz import binaries, mutators

if TYPE_CHECKING:
    from collections.abc import Callable

_CENTRAL, _LOCAL, _END = b"PK\1\2", b"PK\3\4", b"PK\5\6"
# Of a row of the directory, a member's own header, and the end: where each field is, and how wide.
_FIELDS = {
    _CENTRAL: (
        (4, 2),
        (8, 2),
        (10, 2),
        (12, 4),
        (16, 4),
        (20, 4),
        (24, 4),
        (28, 2),
        (30, 2),
        (32, 2),
        (38, 4),
        (42, 4),
    ),
    _LOCAL: ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    _END: ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
}
_NAMES = (
    *(
        "pkg/../../x.so",
        "/x.so",
        "C:/x.so",
        "pkg\\x.so",
        "pkg//x.so",
        "pkg/./x.so",
        "pkg/",
        "pkg",
        ".",
        "é.so",
        "a,b.so",
    ),
    *('"q".so', "a\nb.so", "\x1b[2J.so", "PKG/__init__.py", "pkg.data/platlib/x.so", "x" * 300 + ".so", "pkg/x.so "),
    *("pkg.data/data/pyvenv.cfg", "pkg.data/scripts/python3", "pkg.data/data/bin/activate", "pkg.data/data/.cuwheel/x"),
    *("pkg.data/data/lib/python3.12/site-packages/other/x.py", f"pkg-{mutators.DIGITS}.dist-info/METADATA"),
    *("other-1.0.dist-info/METADATA", "pkg-1.0.dist-info/RECORD.jws", "pkg-1.0.dist-info/cuwheel.json", "pkg/a.so/b"),
)
_HEADERS = (
    *(
        "Version: 1/0",
        "Version: ../1",
        "Version: 1.0-1",
        "Version: ",
        f"Version: {mutators.DIGITS}",
        f"Requires-Dist: x>={mutators.DIGITS}",
        f"Requires-Dist: x; python_version > '{mutators.DIGITS}'",
        f"Requires-Python: >={mutators.DIGITS}",
        "Name: ../x",
        "Name: PKG",
        "Name: x y",
        "Name: é",
    ),
    *(
        "Requires-Dist: x @ file:///etc",
        "Requires-Dist: " + "x" * 3000,
        "License-File: ../../x",
        "Metadata-Version: 9.9",
    ),
    *(
        "Tag: py3-none-manylinux2014_x86_64",
        "Tag: cp311-cp311-win_amd64",
        "Tag: ",
        "Tag: a-b-c-d",
        "Wheel-Version: 2.0",
    ),
    *("Root-Is-Purelib: true", "", "\x00", "Version: 2", " continued", "Tag: py3-none-linux_aarch64"),
)


@dataclass(frozen=True, slots=True)
class _Member:
    info: zipfile.ZipInfo
    data: bytes

    @property
    def name(self) -> str:
        return self.info.filename


_Members = list[_Member]


def mutate(data: bytes, seed: int) -> bytes:
    chance = random.Random(seed)  # noqa: S311 - libFuzzer's seed, so that it can be repeated
    verb, _, body = data.partition(b"\n")
    if (members := _members(body)) is not None:
        for _ in range(chance.randint(1, 3)):
            members = chance.choice(_WAYS)(members, chance)
        if chance.random() < 0.7:
            members = _recorded(members)
        body = _packed(members)
    if chance.random() < 0.25:
        body = _zip_field(body, chance)
    return verb + b"\n" + body


def _members(body: bytes) -> _Members | None:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return [_Member(info, archive.read(info)) for info in archive.infolist() if info.file_size < 1 << 20]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, KeyError):
        return None


def _packed(members: _Members) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in members:
            info = zipfile.ZipInfo(each.name, each.info.date_time)
            info.compress_type, info.external_attr = each.info.compress_type, each.info.external_attr
            info.create_system = each.info.create_system
            archive.writestr(info, each.data)
    return stream.getvalue()


def _recorded(members: _Members) -> _Members:
    """RECORD says what is there, so that the other changes are looked at."""
    listed = next((each.name for each in members if each.name.endswith(".dist-info/RECORD")), None)
    rows = []
    for name, data in {each.name: each.data for each in members if not each.name.endswith("/")}.items():
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name
        rows.append(f"{quoted},," if name == listed else f"{quoted},{digest(data)},{len(data)}")
    text = "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogatepass")
    return [replace(each, data=text) if each.name == listed else each for each in members]


def _with(members: _Members, at: int, member: _Member) -> _Members:
    return [*members[:at], member, *members[at + 1 :]]


def _renamed(member: _Member, name: str) -> _Member:
    info = zipfile.ZipInfo(name, member.info.date_time)
    info.compress_type, info.external_attr = member.info.compress_type, member.info.external_attr
    return replace(member, info=info)


def _library(members: _Members, chance: random.Random) -> _Members:
    places = [at for at, each in enumerate(members) if each.data[:4] == b"\x7fELF"]
    if not places:
        return members
    at = chance.choice(places)
    return _with(members, at, replace(members[at], data=binaries.mutate(members[at].data, chance.randrange(1 << 30))))


def _text(members: _Members, chance: random.Random) -> _Members:
    places = [at for at, each in enumerate(members) if ".dist-info/" in each.name]
    if not places:
        return members
    at = chance.choice(places)
    lines = members[at].data.split(b"\n")
    where = chance.randrange(len(lines))
    line = chance.choice(_HEADERS).encode()
    if members[at].name.endswith("RECORD"):
        line = _row(lines[where], chance)
    lines[where : where + chance.randint(0, 1)] = [line]
    return _with(members, at, replace(members[at], data=b"\n".join(lines)))


def _row(line: bytes, chance: random.Random) -> bytes:
    name, _, rest = line.partition(b",")
    hashed, _, size = rest.partition(b",")
    hostile = str(chance.choice(mutators.HOSTILE)).encode("utf-8", "surrogatepass")
    return chance.choice(
        (
            b",".join((hostile, hashed, size)),
            b",".join((name, hostile, size)),
            b",".join((name, hashed, hostile)),
            b",".join((name, b"", b"")),
            b",".join((name, b"md5=" + hashed, size)),
            b'"' + line,
            line + b",more",
            line + b"\r",
        )
    )


def _name(members: _Members, chance: random.Random) -> _Members:
    at = chance.randrange(len(members)) if members else 0
    return _with(members, at, _renamed(members[at], chance.choice(_NAMES))) if members else members


def _more(members: _Members, chance: random.Random) -> _Members:
    if not members:
        return members
    like = chance.choice(members)
    made = _renamed(like, chance.choice((*_NAMES, like.name, like.name + "/", like.name.upper())))
    return [*members, made] if chance.random() < 0.5 else [made, *members]


def _fewer(members: _Members, chance: random.Random) -> _Members:
    at = chance.randrange(len(members)) if members else 0
    return [*members[:at], *members[at + 1 :]]


def _traits(members: _Members, chance: random.Random) -> _Members:
    if not members:
        return members
    at = chance.randrange(len(members))
    info = zipfile.ZipInfo(members[at].name, chance.choice(((1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58))))
    info.compress_type = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    info.external_attr = chance.choice((0, 0xFFFFFFFF, 0o120777 << 16, 0o40755 << 16 | 0x10, 0o100755 << 16))
    return _with(members, at, replace(members[at], info=info))


def _content(members: _Members, chance: random.Random) -> _Members:
    if not members:
        return members
    at = chance.randrange(len(members))
    data = members[at].data
    cut = chance.randrange(len(data) + 1)
    return _with(members, at, replace(members[at], data=chance.choice((b"", data[:cut], data[cut:], data + b"\0" * 9))))


_WAYS: tuple[Callable[[_Members, random.Random], _Members], ...] = (
    *(_library, _library, _library, _text, _text, _text, _name, _more, _fewer, _traits, _content),
)


def _zip_field(body: bytes, chance: random.Random) -> bytes:
    """What the zip says of itself, made wrong."""
    kind = chance.choice((_CENTRAL, _CENTRAL, _LOCAL, _END))
    places = [at for at in range(len(body)) if body.startswith(kind, at)] if kind != _END else [body.rfind(_END)]
    if not places or places[0] < 0:
        return body
    at, width = chance.choice(_FIELDS[kind])
    at += chance.choice(places)
    old = int.from_bytes(body[at : at + width], "little")
    new = chance.choice((0, 1, old ^ 1 << chance.randrange(8 * width), old + 1, (1 << 8 * width) - 1))
    return body[:at] + (new % (1 << 8 * width)).to_bytes(width, "little") + body[at + width :]
