"""A program and all that it starts, to be ended together: a session's group on POSIX, a job on Windows."""

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
    _ALL_RIGHTS = 0x1FFFFF
    _jobs: dict[int, int] = {}

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _ntdll = ctypes.WinDLL("ntdll")
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.CreateJobObjectW.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR)
    _kernel32.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    _kernel32.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
    _kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)
    _ntdll.NtResumeProcess.argtypes = (wintypes.HANDLE,)

    def started(pid: int) -> None:
        """Of a program that was started with `OPTIONS`. Where a job is refused it runs without one."""
        process, job = _kernel32.OpenProcess(_ALL_RIGHTS, False, pid), _kernel32.CreateJobObjectW(None, None)  # noqa: FBT003
        try:
            if _kernel32.AssignProcessToJobObject(job, process):
                _jobs[pid] = job
            else:
                _kernel32.CloseHandle(job)
            _ntdll.NtResumeProcess(process)
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

else:
    OPTIONS: dict[str, Any] = {"start_new_session": True}

    def started(pid: int) -> None:
        """Of a program that was started with `OPTIONS`: its group has its number."""

    def end(pid: int) -> None:
        """All that is in it, also where the program itself has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def forget(pid: int) -> None:
        """It has ended, and what it left running stays."""
