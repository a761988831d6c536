"""Hostile files through the command line of every verb that takes them: the documented status, little time and memory.

What the readers make of damaged binaries is in tests/unit/inspection; here it is what a person at a terminal meets.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import hostile
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Ended = Callable[[Sequence[Sequence[str]]], list[dict[str, Any]]]

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "tests" / "fixtures" / "bin" / "plain-130.so").read_bytes()
NAME = "pkg-1.0-py3-none-any.whl"
UNSAFE, UNKNOWN = 13, 15  # the second: nobody can tell, of a library that cannot be read
SEVERAL = ("find", "catalogue")  # these look at many wheels: one that cannot be taken is a line of the answer, 1
# Of a wheel that is damaged or lies: what is read is told (0, 1), or it is refused (5, 13). 2 is for `plan --like`,
# where a wheel without the right device code says nothing about sizes.
OF_WHEELS = {0, 1, 5, 13}
# Every fifth command here, so that each file meets a fifth of the verbs and each verb a fifth of the files.
SOME = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
SECONDS, MEMORY, OUTPUT = 30, 512 << 20, 1 << 20  # of any command, whatever it is given


def verbs(wheel: str, out: str) -> dict[str, list[str]]:
    """Every verb that takes a wheel, or a folder of wheels."""
    folder = str(Path(wheel).parent)
    return {
        "inspect": ["inspect", wheel],
        "kernels": ["inspect", wheel, "--kernels"],
        "compare": ["inspect", wheel, "--against", wheel],
        "check": ["check", wheel, "--on", "h100"],
        "slim": ["slim", wheel, "--for", "h100", "-o", f"{out}-slim"],
        "graft": ["graft", wheel, wheel, "-o", f"{out}-graft"],
        "split": ["graft", "--split", wheel, "-o", f"{out}-split"],
        "repair": ["repair", wheel, "-o", f"{out}-repair"],
        "verify": ["verify", wheel, "--static"],
        "pack": ["verify", wheel, "--pack", f"{out}.pyz"],
        "plan": ["plan", "--for", "h100", "--like", wheel],
        "publish": ["publish", wheel, "--to", f"{out}-index"],
        "find": ["find", "pkg", "--on", "h100", "--no-index", "--find-links", folder],
        "catalogue": ["catalogue", "add", "pkg", "--to", f"{out}-facts", "--index", f"{folder}/simple"],
    }


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """One process for all tests, which forks for each command: importing everything takes longer than most of them."""
    warm = tmp_path_factory.mktemp("warm")
    sound = Wheel(files={"pkg/__init__.py": "", "pkg/lib.so": GOOD}, name="pkg").write(warm)
    assert sound.name == NAME
    _listed(warm)
    (warm / "cuwheel.toml").write_text('cuda = ["13.0"]\n')
    with_ci = [["ci", "github", str(warm), *more] for more in (["--write"], ["--check"])]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.hostile_run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "CUWHEEL_CACHE": str(warm / "cache"), "TMPDIR": str(warm)},
    ) as process:
        assert process.stdin
        process.stdin.write(json.dumps([*verbs(str(sound), str(warm / "out")).values(), *with_ci]) + "\n")
        yield process


@pytest.fixture
def ended(runner: subprocess.Popen[str], tmp_path: Path) -> Ended:
    """How each of the commands ended."""

    def ends(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        environ = {"CUWHEEL_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
        assert runner.stdin
        assert runner.stdout
        runner.stdin.write(json.dumps({"commands": commands, "environ": environ}) + "\n")
        runner.stdin.flush()
        found: list[dict[str, Any]] = json.loads(runner.stdout.readline())
        sys.stdout.write(f"{len(found)} commands\n")
        return found

    return ends


def problems(label: str, end: dict[str, Any], allowed: set[int]) -> Iterable[str]:
    if end["status"] not in allowed:
        yield f"{label}: status {end['status']}: {end['message'][-400:]}"
    if "Traceback" in end["message"]:
        yield f"{label}: {end['message'][-400:]}"
    if end["status"] not in (0, 1, UNKNOWN) and "error: " not in end["message"]:
        yield f"{label}: status {end['status']} without a word"
    if end["seconds"] > SECONDS or end["memory"] > MEMORY or end["written"] > OUTPUT:
        yield f"{label}: {end['seconds']} s, {end['memory'] >> 20} MiB, {end['written']:,} bytes of output"


def of_wheels(
    ended: Ended, cases: Iterable[tuple[str, bytes]], folder: Path, allowed: Callable[[str], set[int]], step: int = 1
) -> list[str]:
    labels, commands = [], []
    for number, (name, data) in enumerate(cases):
        place = folder / str(number)
        place.mkdir()
        (place / NAME).write_bytes(data)
        _listed(place)
        for verb, words in list(verbs(str(place / NAME), str(place / "out")).items())[number % step :: step]:
            labels.append((verb, name))
            commands.append(words)
    ends = ended(commands)
    return [
        each
        for (verb, name), end in zip(labels, ends, strict=True)
        for each in problems(f"{verb} of {name}", end, allowed(verb))
    ]


def _listed(place: Path) -> None:
    """The same on the page of an index beside it, as a wheel for a platform, with its hash."""
    data, name = (place / NAME).read_bytes(), NAME.replace("-any.", "-manylinux_2_28_x86_64.")
    page = place / "simple" / "pkg" / "index.html"
    page.parent.mkdir(parents=True)
    page.with_name(name).write_bytes(data)
    link = f"{name}#sha256={hashlib.sha256(data).hexdigest()}"
    page.write_text(f'<!DOCTYPE html><html><body><a href="{link}">{name}</a></body></html>')


@SOME
def test_an_unsafe_wheel_is_an_error_of_its_own_in_every_verb(ended: Ended, tmp_path: Path, step: int) -> None:
    found = of_wheels(
        ended, hostile.unsafe_wheels(GOOD), tmp_path, lambda verb: {1} if verb in SEVERAL else {UNSAFE}, step
    )
    assert not found


def test_an_unsafe_wheel_is_not_installed(ended: Ended, tmp_path: Path) -> None:
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    before = sorted(environment.rglob("*"))
    labels, commands = [], []
    for number, (name, data) in enumerate(hostile.unsafe_wheels(GOOD)):
        place = tmp_path / str(number)
        place.mkdir()
        (place / NAME).write_bytes(data)
        labels.append(f"install of {name}")
        where = ("--no-index", "--find-links", str(place), "--env", str(environment))
        commands.append(["install", "pkg", "--on", "h100", *where])
    ends = ended(commands)
    assert [each for label, end in zip(labels, ends, strict=True) for each in problems(label, end, {1})] == []
    assert sorted(environment.rglob("*")) == before


@SOME
def test_wheels_that_lie_in_their_texts(ended: Ended, tmp_path: Path, step: int) -> None:
    allowed = {"plan": OF_WHEELS | {2}}
    assert not of_wheels(ended, hostile.wheels(GOOD), tmp_path, lambda verb: allowed.get(verb, OF_WHEELS), step)


@pytest.mark.slow
def test_wheels_with_hundreds_of_thousands_of_anything(ended: Ended, tmp_path: Path) -> None:
    found = of_wheels(
        ended,
        hostile.large_wheels(GOOD),
        tmp_path,
        lambda verb: OF_WHEELS | {"plan": {2}, "check": {UNKNOWN}, "find": {UNKNOWN}}.get(verb, set()),
    )
    assert not found


@pytest.mark.slow
def test_damaged_wheels(ended: Ended, tmp_path: Path) -> None:
    found = of_wheels(
        ended,
        hostile.damaged_wheels(GOOD),
        tmp_path,
        lambda verb: OF_WHEELS | {"plan": {2}, "check": {UNKNOWN}, "find": {UNKNOWN}}.get(verb, set()),
    )
    assert not found


def of_documents(
    ended: Ended, cases: Iterable[tuple[str, bytes]], folder: Path, suffix: str, rows: dict[str, Any], step: int
) -> list[str]:
    """`rows`: a command with FILE in it → the statuses that it may end with."""
    labels, commands, allowed = [], [], []
    for number, (name, data) in enumerate(cases):
        path = folder / f"{number}{suffix}"
        path.write_bytes(data)
        for words, statuses in list(rows.items())[number % step :: step]:
            labels.append(f"{words} of {name}")
            commands.append([word.replace("FILE", str(path)) for word in words.split()])
            allowed.append(statuses)
    ends = ended(commands)
    return [
        each
        for label, end, statuses in zip(labels, ends, allowed, strict=True)
        for each in problems(label, end, statuses)
    ]


@SOME
def test_documents_in_toml(ended: Ended, tmp_path: Path, step: int) -> None:
    """Those that a person wrote: all wrong with them is wrong with the command line, 2."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    wheel = Wheel().write(tmp_path)
    rows = {
        f"check {wheel} --on FILE": {0, 2},  # a hundred thousand machines are a fleet
        "plan --for FILE": {0, 2},
        f"build {source} --for h100 --dry-run --config FILE": {2, 5},  # 5: an empty one is sound, and there is no CUDA
        f"verify {wheel} --static --config FILE": {0, 1, 2},
        f"record -o {tmp_path}/recorded --matrix FILE --dry-run": {2},
        "toolchain install 13.0 --dry-run --locked FILE": {2, 5, 6, 11},
        f"ci cibuildwheel {source} --check --file FILE": {1, 2, 5},
        f"install pkg --no-index --find-links {tmp_path} --lock-for FILE -o {tmp_path}/locks": {1, 2},
        f"install -r FILE --dry-run --no-index --find-links {tmp_path} --on h100": {1, 2, 3, 5, 6},
    }
    assert not of_documents(ended, hostile.toml(), tmp_path, ".toml", rows, step)


@SOME
def test_workflows(ended: Ended, tmp_path: Path, step: int) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "cuwheel.toml").write_text('for = ["h100"]\ncuda = ["13.0"]\n')
    rows = {f"ci {service} {source} --check --file FILE": {1, 5} for service in ("github", "gitlab")}
    rows[f"ci github {source} --write --file FILE"] = {0, 2, 5}
    rows[f"ci cibuildwheel {source} --check --file FILE"] = {1, 2, 5}
    assert not of_documents(ended, hostile.yaml(), tmp_path, ".yml", rows, step)


@SOME
def test_documents_in_json(ended: Ended, tmp_path: Path, step: int) -> None:
    wheel = Wheel().write(tmp_path)
    rows = {
        f"check {wheel} --on FILE": {2},
        "plan --for FILE": {2},
        "doctor --on FILE": {2},
        f"explain {os.devnull} --on FILE": {2},
        f"slim {wheel} --for FILE -o {tmp_path}/slimmed": {2},
        "verify --read FILE": {1, 2, 5},
        "toolchain install 13.0 --dry-run --locked FILE": {2, 5, 6, 11},
        f"install --locked FILE --no-index --find-links {tmp_path} --dry-run": {1, 2, 5, 6, 11},
        "explain FILE": {0, 1},
        "ci matrix FILE": {2, 5, 6},
    }
    assert not of_documents(ended, hostile.json(), tmp_path, ".json", rows, step)


def test_journals(ended: Ended, tmp_path: Path) -> None:
    commands, labels = [], []
    for number, (name, data) in enumerate(hostile.journals()):
        root = tmp_path / str(number)
        place = root / ".cuwheel" / "slim" / "0001"
        place.mkdir(parents=True)
        (root / "lib.so").write_bytes(GOOD)
        (place / "journal.jsonl").write_bytes(data)
        for words in (["--undo"], ["--commit"], ["--for", "h100"]):
            commands.append(["slim", str(root), *words])
            labels.append(f"slim {' '.join(words)} with {name}")
    ends = ended(commands)
    found = [each for label, end in zip(labels, ends, strict=True) for each in problems(label, end, {0, 1, 4, 5, 6})]
    assert not found


def test_records(ended: Ended, tmp_path: Path) -> None:
    commands, labels = [], []
    for number, (name, data) in enumerate(hostile.events()):
        record = tmp_path / f"record{number}"
        for file in ("record.json", "events/1.json", "events/2.jsonl", "report.json"):
            (record / file).parent.mkdir(parents=True, exist_ok=True)
            (record / file).write_bytes(data)
        for words in (
            ["record", "replay", str(record)],
            ["record", "replay", str(record), "--list"],
            ["explain", str(record)],
        ):
            commands.append(words)
            labels.append(f"{' '.join(words[::2])} of {name}")
    ends = ended(commands)
    found = [each for label, end in zip(labels, ends, strict=True) for each in problems(label, end, {0, 1, 2, 4, 5, 6})]
    assert not found


def test_what_an_index_and_a_catalogue_say(ended: Ended, tmp_path: Path) -> None:
    """Strangers' pages, facts and lists, from a folder; a network's are the same bytes."""
    labels, commands, allowed = [], [], []
    for number, (name, data) in enumerate(hostile.json()):
        place = tmp_path / str(number)
        for file in (
            "simple/pkg/index.json",
            "catalogue/catalogue.json",
            "index/simple/pkg/index.json",
            "index/.index.json",
        ):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)
        asked = ["find", "pkg", "--on", "h100"]
        for words, statuses in (
            ([*asked, "--index", str(place / "simple")], {1, 3, 4, 5, 6}),
            ([*asked, "--no-index", "--find-links", str(place), "--catalogue", str(place / "catalogue")], {1, 3, 5, 6}),
            (["catalogue", "list", str(place / "catalogue")], {0, 4, 5, 6}),
            (["publish", "--check", str(place / "index")], {1, 4, 5, 6}),
            (["publish", "--to", str(place / "new"), "--catalogue", str(place / "catalogue")], {0, 4, 5, 6}),
        ):
            labels.append(f"{' '.join(words[:2])} with {name}")
            commands.append(words)
            allowed.append(statuses)
    ends = ended(commands)
    rows = zip(labels, ends, allowed, strict=True)
    assert [each for label, end, statuses in rows for each in problems(label, end, statuses)] == []


def test_what_traced_programs_wrote(ended: Ended, tmp_path: Path) -> None:
    commands, labels = [], []
    for number, (name, data) in enumerate((*hostile.events(), *hostile.json())):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "trace-1.jsonl").write_bytes(data)
        (place / "session.json").write_bytes(data)
        commands.append(["trace", "--read", str(place)])
        labels.append(f"trace --read of {name}")
    ends = ended(commands)
    found = [each for label, end in zip(labels, ends, strict=True) for each in problems(label, end, {0, 1, 2, 4, 5, 6})]
    assert not found


def test_files_of_gigabytes_are_not_read_as_documents(ended: Ended, tmp_path: Path) -> None:
    huge = tmp_path / "huge.toml"
    with huge.open("wb") as file:
        file.truncate(8 << 30)
    wheel = Wheel().write(tmp_path)
    rows = {
        ("check", str(wheel), "--on", str(huge)): {2},
        ("plan", "--for", str(huge)): {2},
        ("doctor", "--on", str(huge)): {2},
        ("verify", str(wheel), "--static", "--config", str(huge)): {2},
        ("record", "-o", str(tmp_path / "recorded"), "--matrix", str(huge), "--dry-run"): {2},
        ("toolchain", "install", "13.0", "--dry-run", "--locked", str(huge)): {5},
        ("verify", "--read", str(huge)): {5},
        ("ci", "matrix", str(huge)): {5},
        ("ci", "github", "--check", str(tmp_path), "--file", str(huge)): {5},
    }
    ends = ended([list(words) for words in rows])
    found = [
        each
        for (words, allowed), end in zip(rows.items(), ends, strict=True)
        for each in problems(" ".join(words), end, allowed)
    ]
    assert not found


@pytest.mark.slow
def test_a_log_of_gigabytes_is_searched_at_both_ends(ended: Ended, tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    fatal = b"\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
    with log.open("wb") as file:
        file.truncate((8 << 30) - len(fatal))
        file.seek(0, os.SEEK_END)
        file.write(fatal)
        file.seek(0)
        file.write(b"building\n" * 1_000_000)
    (end,) = ended([["explain", str(log)]])
    assert not list(problems("explain", end, {0}))
