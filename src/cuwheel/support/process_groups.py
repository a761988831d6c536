"""A program and all that it starts, to be ended together: a session's group on POSIX, a job on Windows.

Nothing but the standard library of Python 3.9: it also travels in the kit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    # It starts asleep, so that it is in its job before it can start another program; in a group of its own, so that
    # Ctrl-C in the terminal reaches us alone.
    _SUSPENDED, _NEW_GROUP = 0x4, 0x200
    OPTIONS: dict[str, Any] = {"creationflags": _SUSPENDED | _NEW_GROUP}
    _ALL_RIGHTS, _LOOKING = 0x1FFFFF, 0x1000
    _MEMBERS, _LIMITS, _KILL_ON_CLOSE = 3, 9, 0x2000
    _PROCESS_TIME, _PROCESS_MEMORY = 0x2, 0x100
    _MOST_MEMBERS = 4096
    _PROCESSES, _NO_HANDLE = 0x2, ctypes.c_void_p(-1).value
    _jobs: dict[int, int] = {}

    class _Entry(ctypes.Structure):
        """PROCESSENTRY32W"""

        _fields_ = (
            ("size", wintypes.DWORD),
            ("usage", wintypes.DWORD),
            ("pid", wintypes.DWORD),
            ("heap", ctypes.c_size_t),
            ("module", wintypes.DWORD),
            ("threads", wintypes.DWORD),
            ("parent", wintypes.DWORD),
            ("priority", wintypes.LONG),
            ("flags", wintypes.DWORD),
            ("name", wintypes.WCHAR * 260),
        )

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION"""

        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("working_set", ctypes.c_size_t * 2),
            ("most_processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("priority", wintypes.DWORD * 2),
            ("io", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    class _Members(ctypes.Structure):
        """JOBOBJECT_BASIC_PROCESS_ID_LIST"""

        _fields_ = (
            ("all", wintypes.DWORD),
            ("count", wintypes.DWORD),
            ("pids", ctypes.c_size_t * _MOST_MEMBERS),
        )

    class _Memory(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS_EX"""

        _fields_ = (
            ("size", wintypes.DWORD),
            ("faults", wintypes.DWORD),
            ("used", ctypes.c_size_t * 8),
            ("private", ctypes.c_size_t),
        )

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _ntdll = ctypes.WinDLL("ntdll")
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.CreateJobObjectW.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR)
    _kernel32.GetCurrentProcess.restype = wintypes.HANDLE
    _kernel32.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    _kernel32.SetInformationJobObject.argtypes = (wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD)
    _kernel32.QueryInformationJobObject.argtypes = (
        *(wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD, ctypes.c_void_p),
    )
    _kernel32.QueryFullProcessImageNameW.argtypes = (
        *(wintypes.HANDLE, wintypes.DWORD, ctypes.c_void_p, ctypes.c_void_p),
    )
    _kernel32.K32GetProcessMemoryInfo.argtypes = (wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD)
    _kernel32.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
    _kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)
    _kernel32.CreateToolhelp32Snapshot.restype = wintypes.HANDLE
    _kernel32.CreateToolhelp32Snapshot.argtypes = (wintypes.DWORD, wintypes.DWORD)
    _kernel32.Process32FirstW.argtypes = _kernel32.Process32NextW.argtypes = (wintypes.HANDLE, ctypes.c_void_p)
    _ntdll.NtResumeProcess.argtypes = (wintypes.HANDLE,)

    def started(pid: int, *, with_us: bool = False) -> None:
        """Takes note of a program that was started with `OPTIONS`. `with_us`: it ends when we do, however that happens.

        Where a job is refused it runs without one.
        """
        process, job = _kernel32.OpenProcess(_ALL_RIGHTS, False, pid), _kernel32.CreateJobObjectW(None, None)  # noqa: FBT003
        try:
            if with_us:
                limits = _Limits(flags=_KILL_ON_CLOSE)
                _kernel32.SetInformationJobObject(job, _LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))
            if _kernel32.AssignProcessToJobObject(job, process):
                _jobs[pid] = job
            else:
                _kernel32.CloseHandle(job)
            _ntdll.NtResumeProcess(process)
        finally:
            _kernel32.CloseHandle(process)

    def members(pid: int) -> list[tuple[int, str, int]]:
        """What is alive in the job of a program: number, name and bytes of memory."""
        listed = _Members()
        if not (job := _jobs.get(pid)) or not _kernel32.QueryInformationJobObject(
            job, _MEMBERS, ctypes.byref(listed), ctypes.sizeof(listed), None
        ):
            return []
        return [found for each in listed.pids[: listed.count] if (found := _described(each))]

    def _described(pid: int) -> tuple[int, str, int] | None:
        process = _kernel32.OpenProcess(_LOOKING, False, pid)  # noqa: FBT003
        if not process:
            return None
        try:
            name, size = ctypes.create_unicode_buffer(1024), wintypes.DWORD(1024)
            _kernel32.QueryFullProcessImageNameW(process, 0, name, ctypes.byref(size))
            memory = _Memory(size=ctypes.sizeof(_Memory))
            _kernel32.K32GetProcessMemoryInfo(process, ctypes.byref(memory), memory.size)
            return pid, name.value.rpartition("\\")[2], memory.private
        finally:
            _kernel32.CloseHandle(process)

    def end(pid: int) -> None:
        """All that is in it, also where the program itself has ended."""
        if job := _jobs.get(pid):
            _kernel32.TerminateJobObject(job, 1)

    def forget(pid: int) -> None:
        """It has ended, and what it left running stays."""
        if job := _jobs.pop(pid, None):
            _kernel32.CloseHandle(job)

    def limit_this_one(*, memory: int, seconds: int) -> None:
        """Limits this very program: bytes of memory, and seconds of work, after which it is ended."""
        limits = _Limits(flags=_PROCESS_MEMORY | _PROCESS_TIME)
        limits.memory[0], limits.times[0] = memory, seconds * 10_000_000
        job = _kernel32.CreateJobObjectW(None, None)
        _kernel32.SetInformationJobObject(job, _LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))
        _kernel32.AssignProcessToJobObject(job, _kernel32.GetCurrentProcess())

    def parents() -> list[str]:
        """Names of the programs that started this one, the nearest first; none where the system does not tell."""
        snapshot = _kernel32.CreateToolhelp32Snapshot(_PROCESSES, 0)
        if snapshot in (None, _NO_HANDLE):
            return []
        table: dict[int, tuple[int, str]] = {}
        entry = _Entry(size=ctypes.sizeof(_Entry))
        try:
            more = _kernel32.Process32FirstW(snapshot, ctypes.byref(entry))
            while more:
                table[entry.pid] = (entry.parent, entry.name)
                more = _kernel32.Process32NextW(snapshot, ctypes.byref(entry))
        finally:
            _kernel32.CloseHandle(snapshot)
        return upwards(table, os.getpid())

else:
    OPTIONS: dict[str, Any] = {"start_new_session": True}

    def started(pid: int, *, with_us: bool = False) -> None:
        """Does nothing here: the group of a program that was started with `OPTIONS` has its number."""

    def end(pid: int) -> None:
        """All that is in it, also where the program itself has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def forget(pid: int) -> None:
        """It has ended, and what it left running stays."""

    def limit_this_one(*, memory: int, seconds: int) -> None:
        """Limits this very program: bytes of memory, and seconds of work, after which it is ended."""
        import resource  # noqa: PLC0415 - browsers have none

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def parents() -> list[str]:
        """Names of the programs that started this one: asked for on Windows alone."""
        return []


def upwards(table: dict[int, tuple[int, str]], pid: int) -> list[str]:
    """Names of a process's parents; `table`: number → that of its parent, and its name.

    A number may be given again after its process has ended: then there is a circle, or an end.
    """
    names: list[str] = []
    seen = {pid}
    parent, _ = table.get(pid, (0, ""))
    while parent in table and parent not in seen:
        seen.add(parent)
        parent, name = table[parent]
        names.append(name)
    return names
