"""Starts a check: it dies with the process that started it, and has no network if the system can cut it off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from . import processes

# A process of its own between us and the check: code between fork and exec is not safe where the caller has threads.
# The descriptor closes when the check takes over; what is written to it before says why it could not.
_LAUNCH = """\
import os, sys
report, parent, cut, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "cut", sys.argv[4:]
os.set_inheritable(report, False)
NEWUSER, NEWNET, PDEATHSIG, KILL = 0x10000000, 0x40000000, 1, 9

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def loopback():
    # Programs talk to themselves over it; a new network has it switched off.
    import fcntl, socket, struct
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        asked = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(one, 0x8913, asked))[1]
        fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", flags | 1, b""))

def cut_off(libc):
    # The administrator needs no other user namespace, and keeps what she may do with devices.
    if os.geteuid() == 0 and libc.unshare(NEWNET) == 0:
        return loopback()
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEWUSER | NEWNET):
        import ctypes
        raise OSError(ctypes.get_errno(), "no network of its own: " + os.strerror(ctypes.get_errno()))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", "%d %d 1" % (user, user))
    write("/proc/self/gid_map", "%d %d 1" % (group, group))
    loopback()

try:
    try:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PDEATHSIG, KILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        if cut:
            raise
    if os.getppid() != parent:
        os._exit(1)
    if cut:
        cut_off(libc)
    os.execvp(words[0], words)
except Exception as error:
    os.write(report, (getattr(error, "strerror", None) or str(error) or type(error).__name__).encode()[:4000])
os._exit(127)
"""
_LONGEST_ERROR = 4096
_TRIAL_S = 20.0


class LaunchError(OSError):
    """The program was not started."""


def start(words: Sequence[str], environ: Mapping[str, str], folder: str, *, cut: bool) -> subprocess.Popen[bytes]:
    """In a session of its own, without a standard input; `cut`: without a network, which Windows cannot."""
    if sys.platform == "win32":
        return _in_a_job(words, environ, folder)
    reader, writer = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(writer), str(os.getpid()), "cut" if cut else "", *words],
            env=dict(environ),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(writer,),
        )
        os.close(writer)
        writer = -1
        answer = os.read(reader, _LONGEST_ERROR)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if answer:
        child.communicate()
        raise LaunchError(answer.decode("utf-8", "replace"))
    return child


def _in_a_job(words: Sequence[str], environ: Mapping[str, str], folder: str) -> subprocess.Popen[bytes]:
    """Of Windows: the system ends all that is in it when we end."""
    program = shutil.which(words[0], path=environ.get("PATH")) or words[0]  # `npm` is `npm.cmd` there
    child = subprocess.Popen(
        [program, *words[1:]],
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **processes.GROUPS.OPTIONS,
    )
    processes.GROUPS.started(child.pid, with_us=True)
    return child


def can_cut() -> bool:
    """Whether this system lets us start a program without a network."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        child = start([sys.executable, "-I", "-S", "-c", ""], os.environ, os.curdir, cut=True)
        child.communicate(timeout=_TRIAL_S)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return child.returncode == 0
