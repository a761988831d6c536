"""From bytes to text, in bounded time: whatever encoding; without what is binary, and lines that no program prints."""

from __future__ import annotations

import re

_SAMPLE = 4000
_BLOCK = 1024
_BINARY = 0.05  # share of control characters from which on a block is no text: of random bytes it is 0.11
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\x1b\b\f"))
_HOLE = re.compile(rb"\x00{64,}")  # what a machine that died leaves in a log, or whoever cut a file that is written to
_LONGEST = 1 << 20  # letters of a line: command lines may be two megabytes long, and errors are not on those
_USUAL = 1 << 16  # of lines within a line


def decode(data: bytes) -> str:
    wide = _wide(data)
    if wide:
        return data.decode(wide, errors="replace")
    data = _without_binary(_HOLE.sub(b"", data))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A multi-byte character cut in two is no reason to take the rest for another encoding.
        text = data.decode("utf-8-sig", errors="replace")
        return text if text.count("\ufffd") * 200 <= len(text) else data.decode("cp1252", errors="replace")


def _wide(data: bytes) -> str:
    """UTF-16 by its mark, or without one, as PowerShell's `>` cut to pieces leaves it: every other byte is zero."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    sample = data[:_SAMPLE]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    many, few = len(sample) // 4, len(sample) // 40
    if odd > many and even <= few:
        return "utf-16-le"
    return "utf-16-be" if even > many and odd <= few else ""


def _without_binary(data: bytes) -> bytes:
    """Blocks that are no text leave their line ends, so that lines keep their numbers; all of them, nothing."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)]
    binary = [_is_binary(block) for block in blocks]
    if sum(binary) * 10 > len(blocks) * 9:
        return b""
    if not any(binary):
        return data
    return b"".join(b"\n" * block.count(b"\n") if skip else block for block, skip in zip(blocks, binary, strict=True))


def _is_binary(block: bytes) -> bool:
    return len(block) - len(block.translate(None, _CONTROLS)) > _BINARY * len(block)


def bounded(text: str) -> str:
    """Without the lines that are longer than any program's."""
    lines = text.split("\n")
    if max(map(len, lines)) <= _LONGEST:
        return text
    return "\n".join(line if len(line) <= _LONGEST else _shortened(line) for line in lines)


def _shortened(line: str) -> str:
    """A progress bar's holds many and is split later; of a log that was printed as one string the ends are kept."""
    if len(line) <= _USUAL * line.count("\r"):
        return line
    packed = len(line) <= _USUAL * line.count("\\n")
    return f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}" if packed else ""
