"""The unit and property tests in Python for Windows, under Wine: `./run wine [paths] [pytest options]`.

Each file of tests is a program of its own with a limit on its time: what hangs or ends Python costs no other file.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fixtures.cache import UnavailableError
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DEFAULT = ("tests/unit", "tests/property")
_TEST_S = 300  # a test that takes longer is ended, and says where it was
_PIECE_S = 1200.0  # and a file of tests, whatever holds it up
_NOTHING_TO_DO = 5  # pytest's status where -k or -m leave none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """What one program made of its tests. `skipped`: the reason of each; `output`: what it printed."""

    name: str
    seconds: float
    passed: int = 0
    skipped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    output: str = ""

    def __str__(self) -> str:
        counts = ((self.passed, "passed"), (len(self.skipped), "skipped"), (len(self.failed), "FAILED"))
        told = ", ".join(f"{count} {word}" for count, word in counts if count)
        return f"{self.name}  {told or 'nothing to do'}, {self.seconds:.0f} s"


def pieces(paths: Iterable[str]) -> list[str]:
    """The files below folders; a file or the id of a test is what it is."""
    found: list[str] = []
    for path in paths:
        below = sorted((windows.ROOT / path).rglob("test_*.py"))
        found += [str(each.relative_to(windows.ROOT)) for each in below] or [path]
    return found


def run(name: str, options: Sequence[str], *, limit: float = _PIECE_S) -> Piece:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        # -p no:cacheprovider: the cache of the tests on Linux is not this one's.
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={windows.named(results)}"]
        words += ["-o", f"faulthandler_timeout={_TEST_S}", "-o", "faulthandler_exit_on_timeout=true", *options, name]
        began = time.monotonic()
        status, output = _started(words, limit)
        seconds = time.monotonic() - began
        if not results.is_file():
            how = f"did not end within {limit:.0f} s" if status is None else f"ended with status {status}"
            return Piece(name=name, seconds=seconds, failed=(f"{name} {how}",), output=output)
        return read(results, name, status=status, seconds=seconds, output=output)


def read(results: Path, name: str, *, status: int | None, seconds: float, output: str) -> Piece:
    """pytest's own account of the tests."""
    cases = list(ET.parse(results).getroot().iter("testcase"))  # noqa: S314 - pytest wrote it a moment ago
    skipped = [each.get("message", "") for case in cases for each in case.findall("skipped")]
    failed = [
        f"{name}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    if status not in (0, _NOTHING_TO_DO) and not failed:
        failed = [f"{name} ended with status {status}"]
    passed = len([case for case in cases if not {"skipped", "failure", "error"} & {each.tag for each in case}])
    return Piece(name=name, seconds=seconds, passed=passed, skipped=tuple(skipped), failed=tuple(failed), output=output)


def _started(words: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Its status, None where it had to be ended, and its output."""
    child = subprocess.Popen(
        ["wine", str(windows.python() / "python.exe"), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=windows.environment({"PYTHONUTF8": "1"}),  # tests read and write text as on Linux
        cwd=windows.ROOT,
        start_new_session=True,
    )
    with child:
        try:
            output, _ = child.communicate(timeout=limit)
            status: int | None = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            status = None
    return status, output.decode("utf-8", "replace").replace("\r\n", "\n")


def summary(done: Sequence[Piece]) -> str:
    reasons = collections.Counter(reason for piece in done for reason in piece.skipped)
    failed = [name for piece in done for name in piece.failed]
    passed = sum(piece.passed for piece in done)
    lines = [f"skipped {count}: {reason}" for reason, count in reasons.most_common()]
    lines += [f"FAILED {name}" for name in failed]
    lines += [f"{passed} passed, {reasons.total()} skipped, {len(failed)} failed in {len(done)} files"]
    return "\n".join(lines)


def main() -> int:
    paths = [word for word in sys.argv[1:] if word.startswith("tests")]
    options = [word for word in sys.argv[1:] if word not in paths]
    if why := windows.missing():
        sys.stderr.write(f"error: {why}\n")
        return 1
    try:
        windows.python(), windows.prefix()
    except UnavailableError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    names, done = pieces(paths or _DEFAULT), []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CUWHEEL_TEST_WORKERS", "2"))) as workers:
        for piece in workers.map(lambda name: run(name, options), names):
            done.append(piece)
            sys.stdout.write(f"{piece.output if piece.failed else ''}[{len(done)}/{len(names)}] {piece}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{summary(done)}\n")
    return int(any(piece.failed for piece in done) or not any(piece.passed for piece in done))


if __name__ == "__main__":
    sys.exit(main())
