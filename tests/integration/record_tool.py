"""A compiler that does as its words say: run under compilers' names by the tests of recording.

out:TEXT err:TEXT   print       exit:N signal:N   end     args:FILE   tell words, environment, folder
sleep:S             wait        catch:N           end with 3 at that signal
hold:S              leave a program behind that keeps the output open
fd:N:TEXT           write       stdin:            print what comes in    tty:    print which are terminals
run:NAME            call another compiler         bytes:N print so many
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def out(text: str) -> None:
    os.write(1, os.fsencode(text + "\n"))


def err(text: str) -> None:
    os.write(2, os.fsencode(text + "\n"))


def many(count: str) -> None:
    for _ in range(int(count) // 1000):
        os.write(1, b"x" * 999 + b"\n")


def end(number: str) -> None:
    os.kill(os.getpid(), int(number))
    time.sleep(5)


def args(path: str) -> None:
    told = {"argv": sys.argv, "environ": dict(os.environ), "cwd": str(Path.cwd()), "pid": os.getpid()}
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps(told))
    beside.replace(path)


def fd(rest: str) -> None:
    number, _, text = rest.partition(":")
    os.write(int(number), os.fsencode(text))


def catch(number: str) -> None:
    def caught(number: int, _frame: object) -> None:
        out(f"caught {number}")
        sys.exit(3)

    signal.signal(int(number), caught)


VERBS = {
    "out": out,
    "err": err,
    "bytes": many,
    "exit": lambda status: sys.exit(int(status)),
    "signal": end,
    "args": args,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "hold": lambda seconds: subprocess.Popen(["sleep", seconds]),
    "fd": fd,
    "stdin": lambda _: out(sys.stdin.read().rstrip("\n")),
    "tty": lambda _: out(" ".join(name for name, file in (("in", 0), ("out", 1), ("err", 2)) if os.isatty(file))),
    "run": lambda name: subprocess.run([name, "out:inner"], check=False),
    "catch": catch,
}

for word in sys.argv[1:]:
    verb, _, rest = word.partition(":")
    if verb in VERBS:
        VERBS[verb](rest)
