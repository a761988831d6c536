"""The long tests in one go: `./run test --all`. What passed is remembered, so that an interrupted run goes on.

Every result is a line of a file below build/long, with a digest of what it depends on: a test's result holds for its
own file and all that is no test (sources, fixtures, pages). As a plugin of pytest, which this module is too (`-p
tests.long`), it writes these lines and leaves out what passed before. `./run gpu` (tests/gpu/__main__.py) keeps its
results in the same way.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pytest

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "long"
# What every change runs first, then what is run seldom.
FOLDERS = {
    "core": "core/tests",
    "unit": "tests/unit",
    "property": "tests/property",
    "oracle": "tests/oracle",
    "browser": "tests/browser",
    "integration": "tests/integration",
    "lab": "lab/tests",
    "gpu": "tests/gpu",
    "wine": "tests/wine",
    "fuzz": "tests/fuzz",
    "campaign": "tests/campaign",
}
UNDER_WINE = "under-wine"  # what `./run wine` runs
_NO_TEST_LEFT = 5  # pytest's status where all passed before
_TEST_S = 3600  # a test that takes longer is ended, and says where it was: a slow machine is no failure, a hang is
_SHOWN = 200  # characters of why a test failed
# What is made of the rest: `prebuilt` is, by the tests of Windows, where there is none.
_NOT_OURS = ("build", "dist", "__pycache__", "node_modules", "prebuilt")
_TEST = re.compile(r"(?:(?:core|lab)/)?tests/.*/test_\w+\.py")
_IMPORTED = re.compile(r"^from tests\.([\w.]*test_\w+) import", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one thing, a test or several that are run together; `skipped`: how many for each reason.

    `failed`: why, by name. `digest`: of what the result depends on.
    """

    part: str
    name: str
    digest: str
    passed: int = 0
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


class Contents:
    """Digests of the files here. No git: a machine with a GPU may have a copy of them alone."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        digests = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(root)}
        self._tests = {name: digest for name, digest in digests.items() if _TEST.fullmatch(name)}
        text = "".join((root / name).read_text(encoding="utf-8") for name in self._tests)
        imported = {f"tests/{name.replace('.', '/')}.py" for name in _IMPORTED.findall(text)}
        others = {name: each for name, each in digests.items() if name not in self._tests or name in imported}
        self.common = hashlib.sha256(json.dumps([sys.version, others]).encode()).hexdigest()[:16]
        self.whole = hashlib.sha256(json.dumps([sys.version, digests]).encode()).hexdigest()[:16]

    def of(self, name: str) -> str:
        """What the result of a test depends on, or of something that is not one test."""
        own = self._tests.get(name.partition("::")[0])
        return f"{self.common} {own[:16]}" if own else self.whole


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in _NOT_OURS and not each.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if Path(folder, name).is_file())


class Journal:
    """Results, a line each; of several for the same thing the last one counts. What is no whole line is passed over."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path, self.contents = path, contents

    def add(self, row: Row) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(dataclasses.asdict(row))}\n")  # the line before may have been cut short

    def end(self, part: str, began: float, **counts: Any) -> None:
        """That a part ran to its end, whatever came of it."""
        name = ended(part)
        seconds = round(time.monotonic() - began, 1)
        self.add(Row(part=part, name=name, digest=self.contents.of(name), seconds=seconds, **counts))

    def rows(self) -> list[Row]:
        """Those that hold for what is here now."""
        found = {}
        with contextlib.suppress(FileNotFoundError), self.path.open(encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError, TypeError):
                    row = Row(**json.loads(line))
                    found[row.part, row.name] = row
        return [row for row in found.values() if row.digest == self.contents.of(row.name)]

    def done(self) -> set[str]:
        """What need not run again. What was skipped may have what it lacked by now."""
        return {row.name for row in self.rows() if row.passed and not row.failed and not row.skipped}


def ended(part: str) -> str:
    return f"{part}: to its end"


# As a plugin of pytest -----------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="a file for a line of each test's result")
    parser.addoption("--part", default="", help="which part of the long run they are of")
    parser.addoption("--passed", type=Path, help="a file with the names of tests to leave out")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--results")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(Journal(file, Contents()), config.getoption("--part")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By a list that does not change meanwhile: all workers must collect the same."""
    if file := config.getoption("--passed"):
        passed = set(file.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


class _Writer:
    """Writes a test's line when its last phase was reported, by whichever worker."""

    def __init__(self, journal: Journal, part: str) -> None:
        self._journal, self._part = journal, part
        self._phases: dict[str, list[pytest.TestReport]] = collections.defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases[report.nodeid].append(report)
        # Where a worker crashed there is but one report, which says so.
        if report.when == "teardown" or report.when not in ("setup", "call"):
            self._write(report.nodeid, self._phases.pop(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        for name, phases in self._phases.items():
            if any(each.failed for each in phases):
                self._write(name, phases)

    def _write(self, name: str, phases: list[pytest.TestReport]) -> None:
        why = [_why(each) for each in phases if each.failed]
        reasons = [_reason(each.longrepr) for each in phases if each.skipped]
        self._journal.add(
            Row(
                part=self._part,
                name=name,
                digest=self._journal.contents.of(name),
                passed=int(not why and not reasons),
                skipped=dict.fromkeys(reasons[:1], 1) if not why else {},
                failed={name: why[0]} if why else {},
                seconds=round(sum(each.duration for each in phases), 2),
            )
        )


def _why(report: pytest.TestReport) -> str:
    """The error itself in one line; a worker that died has left but a text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else report.longreprtext).split())[:_SHOWN]


def _reason(longrepr: object) -> str:
    told = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return told.removeprefix("Skipped: ").strip()


# The run -------------------------------------------------------------------------------------------------------------


def run_folder(part: str, journal: Journal, log: Path) -> None:
    """The tests of a folder by pytest: each writes its own line; one more says how pytest itself ended."""
    passed = journal.path.with_suffix(".passed")
    passed.write_text("".join(f"{each}\n" for each in sorted(journal.done())), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-p", "tests.long", "--all", "-n", _workers(), "--dist", "worksteal"]
    words += ["--results", str(journal.path), "--part", part, "--passed", str(passed)]
    words += ["-o", f"faulthandler_timeout={_TEST_S}", "-o", "faulthandler_exit_on_timeout=true"]
    words += ["-o", "tmp_path_retention_policy=failed", FOLDERS[part]]  # of those that pass it would be 16 GB
    began = time.monotonic()
    status = run_logged(words, log)
    why = {} if status in (0, 1, _NO_TEST_LEFT) else {f"pytest {FOLDERS[part]}": f"ended with status {status}: {log}"}
    journal.end(part, began, failed=why)


def run_under_wine(part: str, journal: Journal, log: Path) -> None:
    """The unit and property tests in Python for Windows, folder by folder, as `./run wine` runs them."""
    from tests.fixtures.cache import UnavailableError
    from tests.wine import __main__ as wine

    began = time.monotonic()
    try:
        wine.prepare()
    except UnavailableError as error:
        journal.end(part, began, skipped={str(error): 1})
        return
    passed = {row.name for row in journal.rows() if row.passed and not row.failed}
    wanted = {f"{part}: {' '.join(files)}": files for files in wine.pieces(wine.DEFAULT)}
    with log.open("w", encoding="utf-8") as file:
        for name, found in wine.run_all({name: each for name, each in wanted.items() if name not in passed}):
            file.writelines(f"{piece.output}{piece}\n" for piece in found)
            row = Row(
                part=part,
                name=name,
                digest=journal.contents.of(name),
                passed=sum(piece.passed for piece in found),
                skipped=dict(collections.Counter(reason for piece in found for reason in piece.skipped)),
                failed={each: f"under Wine, {log}" for piece in found for each in piece.failed},
                seconds=round(sum(piece.seconds for piece in found), 1),
            )
            journal.add(row)
    journal.end(part, began)


def run_logged(
    words: Sequence[str], log: Path, limit: float | None = None, env: Mapping[str, str] | None = None
) -> int:
    """With all that it starts in a group of its own, which ends with it; its output is in `log`."""
    with log.open("wb") as file:
        child = subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return 124  # as timeout(1) says it
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _workers() -> str:
    return os.environ.get("CUWHEEL_TEST_WORKERS", "2")


def go(
    parts: Mapping[str, Callable[[], None]],
    journal: Journal,
    *,
    head: str,
    within: float = float("inf"),
    part_s: float = 0,
) -> int:
    """All parts, and the table at the end, which is also written beside the journal.

    `within`: seconds after which no part is begun that may take `part_s`.
    """
    began = time.monotonic()
    status = 0
    try:
        for number, (part, run) in enumerate(parts.items(), 1):
            if ended(part) in journal.done():
                continue
            if time.monotonic() - began + part_s > within:
                say(f"no time for more: the same command goes on with {part}")
                status = 1
                break
            say(f"[{number}/{len(parts)}] {part}: {journal.path.parent / part}.log")
            run()
    except KeyboardInterrupt:
        say("interrupted: the same command goes on here")
        status = 130
    if Contents(journal.contents.root).whole != journal.contents.whole:
        # Rows that were written meanwhile hold for other files: a table without them would look complete.
        say("files changed while the tests ran: what they said holds for no one state; run it again in a tree at rest")
        return status or 1
    rows = [row for row in journal.rows() if row.part in parts]
    text = f"{head}\n\n{table(rows, parts)}"
    journal.path.with_suffix(".md").write_text(text, encoding="utf-8")
    sys.stdout.write(f"\n{text}")
    return status or int(any(row.failed for row in rows) or not any(row.passed for row in rows))


def table(rows: Sequence[Row], parts: Iterable[str]) -> str:
    lines = ["| part | passed | failed | skipped | minutes |", "|---|--:|--:|--:|--:|"]
    for part in parts:
        its = [row for row in rows if row.part == part]
        end = "" if any(row.name == ended(part) for row in its) else " (not to its end)"
        counts = " | ".join(f"{count:,}" for count in _counts(its))
        minutes = sum(row.seconds for row in its if row.name != ended(part) or len(its) == 1) / 60
        lines.append(f"| {part}{end} | {counts} | {minutes:.1f} |")
    failed = {name: why for row in rows for name, why in row.failed.items()}
    reasons: collections.Counter[str] = collections.Counter()
    for row in rows:
        reasons.update(row.skipped)
    if failed:
        lines += ["", "Failed:", "", *(f"- `{name}`: {why}" for name, why in failed.items())]
    if reasons:
        lines += ["", "| skipped | because |", "|--:|---|"]
        lines += [f"| {count:,} | {reason} |" for reason, count in reasons.most_common()]
    passed, bad, skipped = _counts(rows)
    return "\n".join([*lines, "", f"{passed} passed, {bad} failed, {skipped} skipped", ""])


def _counts(rows: Sequence[Row]) -> tuple[int, int, int]:
    passed, failed = sum(row.passed for row in rows), sum(len(row.failed) for row in rows)
    return passed, failed, sum(sum(row.skipped.values()) for row in rows)


def commit() -> str:
    """Of what is here, if git knows."""
    try:
        words = ["git", "describe", "--always", "--dirty=, with changes", "--abbrev=12", "--exclude=*"]
        told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except OSError:
        told = ""
    return f"commit {told}" if told else "no commit is known"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run test --all", description="The long tests. What passed is remembered.")
    parser.add_argument("--fresh", action="store_true", help="forget what passed before")
    parser.add_argument("--only", nargs="+", choices=(*FOLDERS, UNDER_WINE), metavar="PART", help="some parts alone")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    asked = parser.parse_args(words)
    journal = Journal(HOME / "all.jsonl", Contents())
    if asked.fresh:
        journal.path.unlink(missing_ok=True)
    HOME.mkdir(parents=True, exist_ok=True)
    # Ended by signal, as interrupted from the keyboard: the children end too, and the table is printed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def part(name: str) -> Callable[[], None]:
        run = run_under_wine if name == UNDER_WINE else run_folder
        return lambda: None if asked.table else run(name, journal, HOME / f"{name}.log")

    names = asked.only or (*FOLDERS, UNDER_WINE)
    head = f"`./run test --all`, {commit()}, {dt.datetime.now(dt.timezone.utc):%d %B %Y}, {os.cpu_count()} cores"
    return go({name: part(name) for name in names}, journal, head=head)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
