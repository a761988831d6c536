"""The unit and property tests in Python for Windows, under Wine: `./run wine [pytest arguments]`."""

from __future__ import annotations

import subprocess
import sys

from tests.fixtures.cache import UnavailableError
from tests.wine import windows

_DEFAULT = ("tests/unit", "tests/property")


def main() -> int:
    words = sys.argv[1:]
    if not any(word.startswith("tests") for word in words):
        words = [*_DEFAULT, *words]
    if why := windows.missing():
        sys.stderr.write(f"error: {why}\n")
        return 1
    try:
        python, env = (
            windows.python() / "python.exe",
            windows.environment({"PYTHONUTF8": "1"}),
        )  # tests read and write text as on Linux
    except UnavailableError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    # -p no:cacheprovider: the cache of the tests on Linux is not this one's.
    command = ["wine", str(python), "-m", "pytest", "-p", "no:cacheprovider", *words]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=windows.ROOT
    ) as child:
        assert child.stdout
        for line in child.stdout:
            sys.stdout.buffer.write(line.replace(b"\r\n", b"\n"))
            sys.stdout.flush()
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
