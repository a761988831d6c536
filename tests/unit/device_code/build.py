"""Binaries made by hand, the fewest bytes that mean something. Real ones are in tests/fixtures."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import zstandard

X86_64, CUDA = 62, 190
PROGBITS, SYMTAB, STRTAB, RELA, DYNAMIC, NOTE, NOBITS, DYNSYM = 1, 2, 3, 4, 6, 7, 8, 11
ALLOC, EXEC = 2, 4
PTX, CUBIN, LTO = 1, 2, 8
LZ4, ZSTD, SPECIFIC, FAMILY, DEBUG = 0x2000, 0x8000, 0x100000, 0x200000, 0x2
BASE = 0x100000  # address minus file offset, of everything that is loaded


@dataclass(kw_only=True)
class Section:
    name: str
    data: bytes = b""
    type: int = PROGBITS
    flags: int = ALLOC
    link: int = 0
    info: int = 0
    size: int | None = None  # where it is not that of the data


@dataclass(kw_only=True)
class Elf:
    sections: list[Section] = field(default_factory=list)
    machine: int = X86_64
    type: int = 3
    osabi: int = 0
    abi: int = 0
    version: int = 1
    flags: int = 0
    dynamic: str = ""  # the name of the section that PT_DYNAMIC names

    def offsets(self) -> dict[str, int]:
        """Section → its offset in the file; all are aligned to 16."""
        places = {}
        at = 64 + 56 * 2
        for section in self.sections:
            at = (at + 15) // 16 * 16
            places[section.name] = at
            at += len(section.data) if section.type != NOBITS else 0
        return places

    def address(self, name: str) -> int:
        return BASE + self.offsets()[name]

    def build(self) -> bytes:
        places = self.offsets()
        names = b"\0" + b"".join(section.name.encode() + b"\0" for section in self.sections) + b".shstrtab\0"
        body = bytearray(64 + 56 * 2)
        rows = [bytes(64)]
        for section in self.sections:
            body += bytes(places[section.name] - len(body))
            body += section.data if section.type != NOBITS else b""
            size = len(section.data) if section.size is None else section.size
            start = names.index(b"\0" + section.name.encode() + b"\0") + 1
            address = BASE + places[section.name] if section.flags & ALLOC else 0
            row = (start, section.type, section.flags, address, places[section.name], size, section.link, section.info)
            rows.append(struct.pack("<IIQQQQIIQQ", *row, 1, 0))
        start = names.index(b".shstrtab\0")
        rows.append(struct.pack("<IIQQQQIIQQ", start, STRTAB, 0, 0, len(body), len(names), 0, 0, 1, 0))
        body += names
        table = len(body)
        body += b"".join(rows)
        segments = [struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, table, table, 4096)]
        if self.dynamic:
            at, size = places[self.dynamic], len(next(s.data for s in self.sections if s.name == self.dynamic))
            segments.append(struct.pack("<IIQQQQQQ", 2, 6, at, BASE + at, BASE + at, size, size, 8))
        body[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes([self.osabi, self.abi]), self.type, self.machine,
            self.version, 0, 64, table, self.flags, 64, 56, len(segments), 64, len(rows), len(rows) - 1,
        )  # fmt: skip
        body[64 : 64 + 56 * len(segments)] = b"".join(segments)
        return bytes(body)


def entry(
    kind: int,
    arch: int,
    payload: bytes,
    *,
    flags: int = 0x11,
    isa: tuple[int, int] = (1, 8),
    options: str = "",
    identifier: str = "",
) -> bytes:
    """An entry; with ZSTD among the flags the payload is compressed here."""
    real = len(payload)
    compressed = 0
    if flags & ZSTD:
        payload = zstandard.ZstdCompressor().compress(payload)
        compressed = len(payload)
    payload += bytes(-len(payload) % 8)
    tail = identifier.encode() + bytes(8 - len(identifier) % 8) if identifier else b""
    options_at = 0
    if options:
        options_at = 64 + len(tail)
        text = options.encode() + bytes(8 - len(options) % 8)
        tail += struct.pack("<II", options_at + 8, len(options)) + text
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x0101, 64 + len(tail), len(payload), compressed, options_at, isa[1], isa[0], arch,
        64 if identifier else 0, len(identifier), flags, 0, real if compressed else 0,
    )  # fmt: skip
    return head + tail + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def wrapper(address: int = 0, version: int = 1) -> bytes:
    return struct.pack("<IIQQ", 0x466243B1, version, address, 0)


def rela(*rows: tuple[int, int]) -> bytes:
    """Relative relocations: place → address."""
    return b"".join(struct.pack("<QQq", place, 8, addend) for place, addend in rows)


def library(*containers: bytes, relocatable: bytes = b"", name: str = ".nv_fatbin") -> Elf:
    """A shared object with fat binaries, each named by a wrapper through a relocation."""
    file = Elf(
        sections=[
            Section(name=".text", data=b"\xc3" * 32, flags=ALLOC | EXEC),
            Section(name=name, data=b"".join(containers)),
            Section(name="__nv_relfatbin", data=relocatable),
            Section(name=".nvFatBinSegment", data=wrapper() * len(containers)),
            Section(name=".rela.dyn", data=rela(*[(0, 0)] * len(containers)), type=RELA),
        ]
    )
    at, rows = file.address(name), []
    for index, each in enumerate(containers):
        rows.append((file.address(".nvFatBinSegment") + 24 * index + 8, at))
        at += len(each)
    file.sections[-1].data = rela(*rows)
    return file


def cubin(
    kernels: dict[str, tuple[int, int, int]], *, sm: int = 90, abi: int = 8, release: str = "13.0", version: int = 1
) -> bytes:
    """A cubin; each kernel with its registers, stack and shared memory."""
    names = b"\0"
    symbols, info, sections = bytes(24), b"", []
    for index, (name, (registers, stack, shared)) in enumerate(kernels.items(), start=1):
        text = 4 + 2 * index - 1  # behind the four tables, one for code and one for shared memory
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0x10, text, 0, 128)
        info += struct.pack("<BBHII", 4, 0x2F, 8, index, registers) + struct.pack("<BBHII", 4, 0x11, 8, index, stack)
        info += struct.pack("<BBH", 3, 0x1B, 255)  # an attribute of another form: to be passed over
        names += name.encode() + b"\0"
        sections += [
            Section(name=f".text.{name}", data=bytes(128), flags=ALLOC | EXEC),
            Section(name=f".nv.shared.{name}", type=NOBITS, size=shared, info=text),
        ]
    note = f"Cuda compilation tools, release {release}, V{release}.88\0-arch sm_{sm}\0".encode()
    return Elf(
        machine=CUDA,
        type=2,
        osabi=0x41 if abi == 8 else 0x33,
        abi=abi,
        version=version,
        flags=sm << 8 if abi == 8 else sm,
        sections=[
            Section(name=".strtab", data=names, type=STRTAB, flags=0),
            Section(name=".symtab", data=symbols, type=SYMTAB, flags=0, link=1),
            Section(name=".nv.info", data=info, type=0x70000000, flags=0),
            Section(name=".note.nv.tkinfo", data=note if abi == 8 else b"", type=NOTE, flags=0),
            *sections,
        ],
    ).build()


def dynamic(*, needed: tuple[str, ...] = (), soname: str = "", runpath: str = "", glibc: str = "") -> Elf:
    """A shared object that asks for libraries, and for one version of glibc's symbols."""
    strings = b"\0"

    def text(value: str) -> int:
        nonlocal strings
        strings += value.encode() + b"\0"
        return len(strings) - len(value) - 1

    tags = [(1, text(each)) for each in needed]
    tags += [(14, text(soname))] if soname else []
    tags += [(29, text(runpath))] if runpath else []
    need = struct.pack("<HHIII", 1, 1, text("libc.so.6"), 16, 0) + struct.pack("<IHHII", 0, 0, 2, text(glibc), 0)
    count = len(tags) + (4 if glibc else 2) + 1
    file = Elf(
        dynamic=".dynamic",
        sections=[
            Section(name=".dynstr", data=strings, type=STRTAB),
            Section(name=".gnu.version_r", data=need, type=0x6FFFFFFE),
            Section(name=".dynamic", data=bytes(16 * count), type=DYNAMIC),
        ],
    )
    tags += [(5, file.address(".dynstr")), (10, len(strings))]
    tags += [(0x6FFFFFFE, file.address(".gnu.version_r")), (0x6FFFFFFF, 1)] if glibc else []
    file.sections[2].data = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    return file


def pe(sections: dict[str, bytes], imports: tuple[str, ...] = ()) -> bytes:
    """A DLL; each section at the address that is its offset in the file."""
    image_base, optional_size = 0x180000000, 240
    everything = dict(sections)
    count = len(everything) + bool(imports)
    at = 64 + 24 + optional_size + 40 * count
    table, body, place = b"", b"", 0
    if imports:
        place = at
        descriptors = 20 * (len(imports) + 1)
        names = b"".join(each.encode() + b"\0" for each in imports)
        rows, name_at = b"", place + descriptors
        for each in imports:
            rows += struct.pack("<IIIII", 1, 0, 0, name_at, 1)
            name_at += len(each) + 1
        everything[".idata"] = rows + bytes(20) + names
        everything = {".idata": everything[".idata"], **sections}
    for name, data in everything.items():
        table += struct.pack("<8sIIIIIIHHI", name.encode(), len(data), at, len(data), at, 0, 0, 0, 0, 0x40000040)
        body += data
        at += len(data)
    optional = bytearray(optional_size)
    struct.pack_into("<H", optional, 0, 0x20B)
    struct.pack_into("<Q", optional, 24, image_base)
    struct.pack_into("<II", optional, 112 + 8, place, 20)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, count, 0, 0, 0, optional_size, 0x2022)
    return b"MZ" + bytes(58) + struct.pack("<I", 64) + coff + bytes(optional) + table + body


def archive(*members: tuple[str, bytes]) -> bytes:
    data = b"!<arch>\n"
    for name, body in members:
        data += (
            f"{name + '/':<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
        )
    return data
