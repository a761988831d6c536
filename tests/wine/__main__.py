"""The unit and property tests in Python for Windows, under Wine: `./run wine [paths] [pytest options]`.

The tests of a folder are one program with a limit on its time. Where one hangs, or ends Python, the folder's files
are run one by one: it costs no other file.
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DEFAULT = ("tests/unit", "tests/property", "tests/integration/test_repair_windows.py")
_TEST_S = 300  # a test that takes longer is ended, and says where it was
_PIECE_S = 2700.0  # and the tests of a folder, whatever holds them up
_NOTHING_TO_DO = 5  # pytest's status where -k or -m leave none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """What one program made of its tests. `skipped`: the reason of each; `output`: what it printed.

    `ended`: whether it came to its end, so that all tests are counted.
    """

    name: str
    seconds: float
    ended: bool = True
    passed: int = 0
    skipped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    output: str = ""

    def __str__(self) -> str:
        counts = ((self.passed, "passed"), (len(self.skipped), "skipped"), (len(self.failed), "FAILED"))
        told = ", ".join(f"{count} {word}" for count, word in counts if count)
        return f"{self.name}  {told or 'nothing to do'}, {self.seconds:.0f} s"


def pieces(paths: Iterable[str]) -> list[tuple[str, ...]]:
    """The files, or ids of tests, of each folder together."""
    found: dict[Path, list[str]] = {}
    for path in paths:
        below = [str(each.relative_to(windows.ROOT)) for each in sorted((windows.ROOT / path).rglob("test_*.py"))]
        for each in below or [path]:
            found.setdefault(Path(each).parent, []).append(each)
    return [tuple(each) for each in found.values()]


def run_whole(names: tuple[str, ...], options: Sequence[str]) -> list[Piece]:
    """All at once, and one by one where that did not come to its end."""
    piece = run(names, options)
    return [piece] if piece.ended or len(names) == 1 else [run((each,), options) for each in names]


def run(names: tuple[str, ...], options: Sequence[str], *, limit: float = _PIECE_S) -> Piece:
    name = names[0] if len(names) == 1 else str(Path(names[0]).parent)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        # -p no:cacheprovider: the cache of the tests on Linux is not this one's.
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={windows.named(results)}"]
        words += ["-o", f"faulthandler_timeout={_TEST_S}", "-o", "faulthandler_exit_on_timeout=true", *options, *names]
        began = time.monotonic()
        status, output = _started(words, limit)
        piece = Piece(name=name, seconds=time.monotonic() - began, output=output)
        if status is not None and results.is_file():
            return read(results, piece, status)
        # One that was ended may have been writing them.
        how = f"did not end within {limit:.0f} s" if status is None else f"ended with status {status}"
        return dataclasses.replace(piece, ended=False, failed=(f"{name} {how}",))


def read(results: Path, piece: Piece, status: int) -> Piece:
    """With pytest's own account of the tests."""
    cases = list(ET.parse(results).getroot().iter("testcase"))  # noqa: S314 - pytest wrote it a moment ago
    ends = [{each.tag for each in case} for case in cases]
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case, end in zip(cases, ends, strict=True)
        if {"failure", "error"} & end
    ]
    if status not in (0, _NOTHING_TO_DO) and not failed:
        failed = [f"{piece.name} ended with status {status}"]
    return dataclasses.replace(
        piece,
        passed=len([end for end in ends if not {"skipped", "failure", "error"} & end]),
        skipped=tuple(_reason(each) for case in cases for each in case.findall("skipped")),
        failed=tuple(failed),
    )


def _reason(skipped: ET.Element) -> str:
    """Of a whole file pytest has it in the text alone: its place, line and reason."""
    told = skipped.get("message", "")
    return told if told != "collection skipped" else (skipped.text or "").rpartition("Skipped: ")[2].rstrip("\"')")


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
    lines += [f"{passed} passed, {reasons.total()} skipped, {len(failed)} failed"]
    return "\n".join(lines)


def prepare() -> None:
    """What all of them need; where it cannot be had the error says why."""
    if why := windows.missing():
        raise UnavailableError(why)
    windows.python(), windows.prefix()


def run_all(wanted: Mapping[str, tuple[str, ...]], options: Sequence[str] = ()) -> Iterator[tuple[str, list[Piece]]]:
    """Each as soon as it and those before it are done."""
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CUWHEEL_TEST_WORKERS", "2"))) as workers:
        yield from zip(wanted, workers.map(lambda names: run_whole(names, options), wanted.values()), strict=True)


def main() -> int:
    paths = [word for word in sys.argv[1:] if word.startswith("tests")]
    options = [word for word in sys.argv[1:] if word not in paths]
    try:
        prepare()
    except UnavailableError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    wanted, done = {each[0]: each for each in pieces(paths or DEFAULT)}, list[Piece]()
    for number, (_, found) in enumerate(run_all(wanted, options), 1):
        done += found
        for piece in found:
            sys.stdout.write(f"{piece.output if piece.failed else ''}[{number}/{len(wanted)}] {piece}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{summary(done)}\n")
    return int(any(piece.failed for piece in done) or not any(piece.passed for piece in done))


if __name__ == "__main__":
    sys.exit(main())
