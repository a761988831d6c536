"""Every verb on terminals and pipes that cannot show every character, with paths and variables that are no UTF-8."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures import compiled
from tests.fixtures.small_wheel import Wheel
from tests.fixtures.verbs import CALLED

BIN = Path(__file__).parent.parent / "fixtures" / "bin"
CUWHEEL = Path(sys.executable).with_name("cuwheel")
ODD = b"caf\xe9-\xc3\xa9-\xff".decode(errors="surrogateescape")
SETTINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252:strict"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "utf-8, strict": {"PYTHONIOENCODING": "utf-8:strict"},
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
WITH_PAGE = ("inspect", "check")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name is no text, and in it one of everything that a verb takes."""
    folder = tmp_path_factory.mktemp("encodings") / ODD
    folder.mkdir()
    try:
        shutil.copy(BIN / "plain-130.so", folder / f"lib{ODD}.so")
    except OSError:
        pytest.skip("this file system takes no such name")
    shutil.copy(BIN / "all-124.so", folder / "other.so")
    subject = Wheel(files={"subject/__init__.py": "", "subject/caf\xe9\u2192.so": (BIN / "plain-130.so").read_bytes()})
    subject.write(folder)
    (folder / "build.log").write_bytes(
        b"caf\xe9: nvcc fatal   : Unsupported gpu architecture 'compute_50'\n" + b"\xff" * 9
    )
    (folder / "TRIALS.toml").write_text("command = \"sh -c 'echo caf\u00e9; exit 1'\"\nrepeats = 1\n", encoding="utf-8")
    (folder / "matrix.toml").write_text("command = 'echo caf\u00e9'\naxes = {}\n", encoding="utf-8")
    (folder / "src").mkdir()
    (folder / "src" / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    compiled.our_own(folder)
    ended(folder, {}, ["record", "-o", "recorded", "--", "cc", "-c", f"{ODD}.c"])
    return folder


# One after the other, with the streams that this interpreter made for itself: only where they lead to changes.
RUNNER = """\
import json, os, sys
from cuwheel.cli import main
for number, words in enumerate(json.load(open(sys.argv[1]))):
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{sys.argv[1]}-{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    try:
        status = main([os.fsdecode(word.encode("utf-8", "surrogateescape")) for word in words])
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    open(f"{sys.argv[1]}-{number}.status", "w").write(str(status or 0))
"""


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: bytes
    stderr: bytes


def ended(folder: Path, settings: dict[str, str], *commands: list[str]) -> list[Ended]:
    """How each command of cuwheel ended in a process with these settings."""
    odd = {"CUDA_HOME": f"/{ODD}", "LD_LIBRARY_PATH": ODD, "TORCH_CUDA_ARCH_LIST": ODD, "CUWHEEL_CACHE": str(folder)}
    odd["CUWHEEL_CLUSTER"] = str(folder / f"cluster-{ODD}")
    asked = folder / "asked.json"
    asked.write_text(json.dumps(commands))
    environ = os.environ | odd | settings
    done = subprocess.run([sys.executable, "-c", RUNNER, asked], timeout=600, env=environ, cwd=folder, check=False)
    assert done.returncode == 0
    return [
        Ended(
            status=int((folder / f"{asked.name}-{number}.status").read_text()),
            stdout=(folder / f"{asked.name}-{number}.out").read_bytes(),
            stderr=(folder / f"{asked.name}-{number}.err").read_bytes(),
        )
        for number, _ in enumerate(commands)
    ]


def words_of(verb: str, folder: Path) -> list[str]:
    odd = str(folder / f"lib{ODD}.so")
    wheel = str(next(folder.glob("*.whl")))
    return {
        "doctor": [],
        "cache": [],
        "inspect": [str(folder)],
        "check": [odd, wheel, "--on", "h100"],
        "plan": ["--for", "h100", "--cuda", "13.0"],
        "toolchain": ["list"],
        "build": ["src", "--for", "h100", "--cuda", "13.0", "--dry-run", "-o", str(folder / "out")],
        "repair": [wheel, "--dry-run"],
        "verify": [wheel, "--static"],
        "slim": [odd, "--for", "h100", "-o", f"slim-{ODD}", "--dry-run"],
        "graft": [odd, "other.so", "-o", f"graft-{ODD}", "--dry-run"],
        "publish": [wheel, "--to", str(folder / "index"), "--dry-run"],
        "trace": ["--", "cc", "-c", f"{ODD}.c"],
        "find": ["subject", "--no-index", "--find-links", str(folder), "--on", "h100"],
        "install": ["subject", "--no-index", "--find-links", str(folder), "--on", "h100", "--dry-run"],
        "ci": ["github", str(folder)],
        "catalogue": ["list", "--on", "h100"],
        "record": ["--", "cc", "-c", f"{ODD}.c"],
        "record replay": ["recorded", "--print"],
        "record diff": ["recorded", "--max-runs", "0"],
        "explain": ["build.log"],
        "lab bench": ["--at-once", "1", "--seconds", "0.2", "--", "echo", ODD],
        "lab matrix": ["matrix.toml", "--dry-run"],
        "lab trials": ["run", "TRIALS.toml", "-o", f"trials-{ODD}", "--resume"],
        "cluster": ["init"],
        "lookup gpu": ["h100"],
        "lookup cuda": [],
    }[verb]


def unsound(end: Ended) -> str:
    """What no command may end with."""
    crashed = end.status == 70 or b"Traceback" in end.stderr or b"bug in cuwheel" in end.stderr
    return end.stderr.decode(errors="replace") if crashed else ""


def wrong_with_output(verb: str, end: Ended, setting: str, page: Path, *, paged: bool) -> str:
    if said := unsound(end):
        return said
    if verb not in ("record", "trace"):  # whose output is the compiler's
        encoding = SETTINGS[setting].get("PYTHONIOENCODING", "ascii").partition(":")[0]
        try:
            (end.stdout + end.stderr).decode(encoding)
        except UnicodeDecodeError as error:
            return f"is not in {encoding}: {error}"
    if page.exists():
        return "" if "<html" in page.read_bytes().decode("utf-8") else "wrote no page"
    return f"wrote no page: {end.stderr!r}" if paged and end.status <= 1 else ""


@pytest.mark.parametrize("setting", SETTINGS)
def test_output_never_crashes(world: Path, setting: str) -> None:
    """Every verb as on Windows' pipes; elsewhere the one that prints most."""
    rows = []
    for verb in CALLED if setting == "cp1252" else ["inspect"]:
        page = world / f"{setting}-{verb}-{ODD}.html"
        html = ["--html", str(page)] if verb in WITH_PAGE else []
        rows.append((verb, page, [*verb.split(), *html, *words_of(verb, world)]))
    ends = ended(world, SETTINGS[setting], *(words for _, _, words in rows))
    wrong = [
        f"{verb}: {said}"
        for (verb, page, words), end in zip(rows, ends, strict=True)
        if (said := wrong_with_output(verb, end, setting, page, paged="--html" in words))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("setting", ["C locale", "ascii"])
def test_json_is_utf8_everywhere(world: Path, setting: str) -> None:
    every = [verb for verb in CALLED if verb not in ("record", "trace")] if setting == "C locale" else ["inspect"]
    ends = ended(world, SETTINGS[setting], *([*verb.split(), "--json", *words_of(verb, world)] for verb in every))
    wrong = [f"{verb}: {said}" for verb, end in zip(every, ends, strict=True) if (said := unsound(end))]
    assert not wrong, "\n".join(wrong)
    for end in ends:
        if end.status in (0, 1):
            assert json.loads(end.stdout.decode("utf-8"))["schema"].startswith("cuwheel.")


def test_help_and_complaints_never_crash(tmp_path: Path) -> None:
    commands: list[list[str]] = [[], ["inspect", "--help"], [ODD], ["inspect", f"/{ODD}"], ["lookup", "gpu", ODD]]
    ends = ended(tmp_path, SETTINGS["ascii"], *commands)
    assert [said for end in ends if (said := unsound(end))] == []


def test_what_the_encoding_has_not_is_written_otherwise(world: Path) -> None:
    """Of the command as users start it."""
    words = [str(CUWHEEL), "slim", "other.so", "--for", "h100", "-o", "x", "--dry-run"]
    environ = os.environ | SETTINGS["ascii"]
    done = subprocess.run(words, capture_output=True, timeout=120, env=environ, cwd=world, check=True)
    assert b" -> " in done.stdout


def test_closed_streams_lead_nowhere(world: Path) -> None:
    command = f'"{CUWHEEL}" lookup gpu h100 >&- 2>&-; echo $?'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd=world)
    assert done.stdout.strip() == "0"
