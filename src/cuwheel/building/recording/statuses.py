"""How a program ended, in words: on Windows a crash is a status too, of 32 bits."""

from __future__ import annotations

_FIRST, _LAST = 0x8000_0000, 0xFFFF_FFFF  # of Windows' own
# Microsoft, [MS-ERREF] 2.3.1 "NTSTATUS Values".
_NAMES = {
    0x8000_0003: "a breakpoint",
    0xC000_0005: "an access violation",
    0xC000_0017: "no memory",
    0xC000_001D: "an illegal instruction",
    0xC000_0026: "an invalid exception",
    0xC000_007B: "a DLL of another processor, or a damaged one",
    0xC000_0094: "a division by zero",
    0xC000_00FD: "a stack overflow",
    0xC000_012D: "no memory: the paging file is too small",
    0xC000_0135: "a DLL was not found",
    0xC000_0138: "a DLL lacks a function by its number",
    0xC000_0139: "a DLL lacks a function",
    0xC000_013A: "Ctrl-C",
    0xC000_0142: "a DLL could not be initialised",
    0xC000_0374: "a damaged heap",
    0xC000_0409: "it aborted, or found its stack damaged",
    0xC000_041D: "an exception in a callback",
}


def name(status: int) -> str:
    """What a status of Windows' own means; empty for any other."""
    return _NAMES.get(status, "")


def words(status: int | None) -> str:
    """`1`, or `0xC0000135 (a DLL was not found)`."""
    if status is None or not _FIRST <= status <= _LAST:
        return str(status)
    known = name(status)
    return f"0x{status:08X} ({known})" if known else f"0x{status:08X}"


def for_shell(status: int) -> int:
    """As a shell has it: 128+n where signal n ended it; Windows' own of 32 bits in the range of a C integer."""
    if status < 0:
        return 128 - status
    return status - (1 << 32) if _FIRST <= status <= _LAST else status
