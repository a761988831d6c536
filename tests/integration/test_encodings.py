"""Every verb on terminals and pipes that cannot show every character, with paths and variables that are no UTF-8."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuwheel.verbs import VERBS
from tests.fixtures.small_wheel import Wheel

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
WITH_PAGE = ("inspect", "compare", "check", "verify", "slim", "graft", "repair")


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
    (folder / "src").mkdir()
    (folder / "src" / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    cuwheel(folder, {}, "record", "-o", "recorded", "--", "cc", "-c", f"{ODD}.c")
    return folder


def cuwheel(folder: Path, settings: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    odd = {"CUDA_HOME": f"/{ODD}", "LD_LIBRARY_PATH": ODD, "TORCH_CUDA_ARCH_LIST": ODD, "CUWHEEL_CACHE": str(folder)}
    return subprocess.run(
        [CUWHEEL, *words], capture_output=True, timeout=120, env=os.environ | odd | settings, cwd=folder, check=False
    )


def words_of(verb: str, folder: Path) -> list[str]:
    odd = str(folder / f"lib{ODD}.so")
    wheel = str(next(folder.glob("*.whl")))
    return {
        "doctor": [],
        "cache": [],
        "inspect": [str(folder)],
        "kernels": [odd],
        "compare": [odd, "other.so"],
        "check": [odd, wheel, "--on", "h100"],
        "plan": ["--for", "h100", "--cuda", "13.0"],
        "toolchain": ["list", "--cache", str(folder)],
        "build": ["src", "--for", "h100", "--cuda", "13.0", "--dry-run", "-o", str(folder / "out")],
        "repair": [wheel, "--dry-run"],
        "verify": [wheel, "--static"],
        "slim": [odd, "--for", "h100", "-o", f"slim-{ODD}", "--dry-run"],
        "graft": [odd, "other.so", "-o", f"graft-{ODD}", "--dry-run"],
        "publish": [wheel, "--to", str(folder / "index"), "--dry-run"],
        "trace": ["--", "cc", "-c", f"{ODD}.c"],
        "find": ["subject", "--no-index", "--find-links", str(folder), "--on", "h100"],
        "install": ["subject", "--no-index", "--find-links", str(folder), "--on", "h100", "--dry-run"],
        "ci": ["github", "--source", str(folder)],
        "catalogue": ["list", "--on", "h100"],
        "record": ["--", "cc", "-c", f"{ODD}.c"],
        "replay": ["recorded", "--print"],
        "explain": ["build.log"],
        "bench": ["--at-once", "1", "--calls", "2", "--blocks", "2", "--", "echo", ODD],
        "trials": ["run", "TRIALS.toml", "-o", f"trials-{ODD}", "--resume"],
        "cluster": ["init", "-o", str(folder / f"cluster-{ODD}")],
        "gpus": ["h100"],
        "toolkits": [],
    }[verb]


def sound(done: subprocess.CompletedProcess[bytes]) -> None:
    assert done.returncode != 70, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"bug in cuwheel" not in done.stderr


@pytest.mark.parametrize(
    ("verb", "setting"), [*((verb, "cp1252") for verb in VERBS), *(("inspect", setting) for setting in SETTINGS)]
)
def test_output_never_crashes(world: Path, verb: str, setting: str) -> None:
    words = words_of(verb, world)
    page = world / f"{verb}-{ODD}.html"
    html = ["--html", str(page)] if verb in WITH_PAGE else []
    done = cuwheel(world, SETTINGS[setting], verb, *html, *words)
    sound(done)
    if verb not in ("record", "trace"):  # whose output is the compiler's
        (done.stdout + done.stderr).decode(SETTINGS[setting].get("PYTHONIOENCODING", "ascii").partition(":")[0])
    if page.exists():
        assert "<html" in page.read_bytes().decode("utf-8")
    else:
        assert not html or done.returncode > 1, done.stderr


@pytest.mark.parametrize(
    ("verb", "setting"),
    [*((verb, "C locale") for verb in VERBS if verb not in ("record", "trace")), ("inspect", "ascii")],
)
def test_json_is_utf8_everywhere(world: Path, verb: str, setting: str) -> None:
    done = cuwheel(world, SETTINGS[setting], verb, "--json", *words_of(verb, world))
    sound(done)
    if done.returncode in (0, 1):
        assert json.loads(done.stdout.decode("utf-8"))["schema"].startswith("cuwheel.")


@pytest.mark.parametrize("words", [[], ["inspect", "--help"], [ODD], ["inspect", f"/{ODD}"], ["gpus", ODD]])
def test_help_and_complaints_never_crash(tmp_path: Path, words: list[str]) -> None:
    sound(cuwheel(tmp_path, SETTINGS["ascii"], *words))


def test_what_the_encoding_has_not_is_written_otherwise(world: Path) -> None:
    done = cuwheel(world, SETTINGS["ascii"], "slim", "other.so", "--for", "h100", "-o", "x", "--dry-run")
    assert b" -> " in done.stdout


def test_closed_streams_lead_nowhere(world: Path) -> None:
    command = f'"{CUWHEEL}" gpus h100 >&- 2>&-; echo $?'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd=world)
    assert done.stdout.strip() == "0"
