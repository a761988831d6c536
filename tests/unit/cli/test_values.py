"""Every option says what is wrong with a value, names itself, and ends with status 2.

The options are those of the verbs' rows; a kind of value that is added without wrong ones below fails here.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.cli import frame, main, values
from cuwheel.cli.options import flat
from cuwheel.machine.fleet import machines_asked_for
from tests.fixtures.verbs import CALLED, Called

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.cli.options import Option

pytestmark = pytest.mark.unit

NONSENSE = (
    "banana",
    "-1",
    "9" * 30,
    "x" * 5000,
    "a\nb",
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}",
    "\udcff\udcfe",  # bytes that are not UTF-8, as Python gives them
    "1e999",
    "../../etc/passwd",
)
EMPTY = ("", " ", "\t", "a\0b")

# Kind of value → what is wrong with one, beside what is nonsense for every kind. In capitals: places of `world`.
WRONG = {
    "machines": (
        "h100,banana",
        ",",
        "12.8",
        "cu128",
        "570.86.10",
        "4.5",
        "99.9",
        "sm_9000",
        "FOLDER",
        "MISSING.toml",
        "MISSING.json",
        "NOT.json",
        "NOT.toml",
    ),
    "gpu": ("12.8", "cu128", "570.86.10", "sm_9000", "99.9", "FOLDER", "h100,a100"),
    "one_machine": ("12.8", "sm_9000", "99.9", "FOLDER", "MISSING.json", "NOT.json", "PIPE", "h100,a100"),
    "whole_machine": ("MISSING.json", "FOLDER", "NOT.json", "NOT.toml", "PIPE", "h100", "h10O"),
    "driver": ("cu128", "12.99", "sm_90", "h100", "9999.1", "570.", "570.86.10.1", "550..570", "FOLDER"),
    "cuda": ("570.86.10", "sm_90", "h100", "99.9", "12.99", "13.42", "cu999", "0", "12.", "12.1..12.8", "FOLDER"),
    "cuda_minor": ("12", "13", "12.1..12.8", "570.86.10", "sm_90", "99.9", "12.99"),
    "toolkit": ("570.86.10", "sm_90", "12.1..12.8", "99.9", "12.99", "14.7"),
    "toolkits": ("570.86.10", "sm_90", "99.9", "12.8,99.9", ",", "14.7"),
    "python_minors": ("2.7", "12.8", "3.13t", "3.12,banana", ",", "3.111"),
    "machine_settings": (
        *(f"python={each}" for each in ("2.7", "12.8", "cu128", "4.0", "3.", "3.111", "3.9..3.12")),
        *(f"torch={each}" for each in ("12", "cu128", "h100", "2.", "v2.7", "2.9..2.12", "2.9-2.12.x")),
        *(f"torch={each}" for each in ("2.7.1+", "2.7.1+a..b", "2.7_1-x")),
        "glibc",
        "glibc=2.350",
        "glibc=2.17..2.35",
        "cpu=risc",
        "l4t=jetson",
        "os=plan9",
        "jit=perhaps",
        "jax_cuda=99.9",
        "driver=580.65.06",
        "os=linux,cpu=64",
        ",",
    ),
    "glibc": ("12.8", "3.12", "2.17..2.35", "2", "2.350", "glibc"),
    "cpu": ("x86", "risc", "h100", "64"),
    "platform": ("linux", "win", "windows", "x86_64", "h100", "win_amd65", "manylinux", "py3-none-any"),
    "choice": ("h100", "12.8"),
    "count": ("0", "1.5", "1e3", "100001", "\N{ARABIC-INDIC DIGIT THREE}"),
    "index": ("1.5", "GPU-12", "0,1"),
    "distributions": ("torch==2.0", ",", "a b", "-x"),
    "lock_formats": ("json", ",", "pylock,x"),
    "fleet": ("MISSING.toml", "FOLDER", "NOT.toml", "PIPE", "h100"),
    "pin": ("activate=x", "systemd", "bashrc", "=x"),
    "age": ("30", "d", "1.5d", "30m", "123456d"),
    "size": ("0", "2 gigabytes", "GB", "1h"),
    "links": ("MISSING", "ftp://somewhere/x", "https://"),
    "seconds": ("0", "nan", "inf", "1h", "99999999999"),
    "version": ("1.0+", "new one", "1/2", "==1.0"),
    "requirement": ("torch==", "==2.0", "torch 2.7", "./FOLDER"),
    "variables": ("A-B", "A=B", "1A", "A B", "A,B C"),
    "distribution": ("torch==2.0", "a b", "-x", "a,b"),
    "chance": ("0", "1", "100%", "nan", "inf", "1.5"),
    "counts": ("0", "1,,2", "1,banana", "1025", "1.5"),
    "bench_setting": ("MISSING", "FILE", "A-B=1", "=1", "torch== 2 x", "MISSING.whl"),
    "choice_of_axis": ("key", "=value", "start=", "start= "),
    "image": ("-it", "a b", "--privileged"),
    "components": ("cublas,banana", ",", "12.8", "sm_90"),
    "providers": (
        "system,banana",
        ",",
        "pip",
        "system=MISSING",
        "index=/usr",
        "redist=MISSING",
        "redist=",
        "container=a b",
    ),
    "fallbacks": ("newer", ",", "none,cpu", "older,banana"),
    "build_setting": (
        "merge",
        "merg=true",
        "merge=perhaps",
        "gate.allow=sm_75,banana",
        "subdirectory=..",
        "timeout=-1",
    ),
    "need": ("frobs>=2", "gcc>>9", "cuda>=banana", "12.8", "h100"),
    "binary": ("MISSING.whl", "./nowhere.so", "h100"),
    "file": ("MISSING.toml", "FOLDER", "PIPE"),
    "folder": ("MISSING", "FILE", "FILE/x"),
    "environment": ("MISSING", "FILE", "FOLDER"),
    "new_file": ("FOLDER", "MISSING/x.html", "FILE/x.html"),
    "new_folder": ("FILE", "FILE/x"),
    "place": ("MISSING", "FILE", "ftp://somewhere/x", "https://"),
    "policy": ("2.28", "manylinux", "musllinux_1_2", "manylinux_9_99", "linux_x86_64"),
    "soname": ("a/b", "/usr/lib/libx.so"),
    "compiler": ("MISSING", "FOLDER", "12.8", "no-such-compiler"),
    "program": ("MISSING", "FOLDER", "12.8", "no-such-compiler"),
    "address": ("FOLDER", "ftp://a.example/x", "https://", "https://user:secret@a.example", "https://a.example/?x=1"),
    "upload_address": ("FOLDER", "ftp://a.example/x", "https://", "https://a.example/?x=1"),
    "published_file": (
        "foo",
        "foo-1.0.tar.gz",
        "foo==",
        "foo==x",
        "../foo-1.0-py3-none-any.whl",
        "..-1.0-py3-none-any.whl",
    ),
    "allowed": ("net", "network,banana", ","),
    "wants": ("futures", "future,banana", "ptx"),
    "cpus": ("x86", "x86_64,banana", ",", "h100"),
    "built": ("MISSING", "FILE", "ftp://somewhere/x", "https://", "1.0+"),
    "tag": ("gpu", "GPU:9.0", "gpu:", "gpu:9.0 x", ":9.0"),
    "listening": ("8787", ":8787", "127.0.0.1:0", "127.0.0.1:99999", "a b:1", "127.0.0.1:"),
    "cluster": (
        "tcp://build01:8786",
        "tcp://127.0.0.1:1",
        "tls://x",
        "tls://:1",
        "ssh://a:1",
        "slurm:0",
        "tls://a:1/x",
    ),
    "line": ("two\nlines", "\x1b[31mred", "x" * 501),
}
WRONG |= {"copy_place": ("https://x/y", " ", "FILE/x")}
WRONG |= {"file_or_folder": ("FILE/x", "nowhere")}
WRONG |= {"locked": ("MISSING", "PIPE", "ftp://somewhere/x")}
WRONG |= {"lock_file": ("FOLDER", "FILE/x"), "new_file_or_folder": ("FILE/x",)}
WRONG |= dict.fromkeys(("machines_or_all", "machine_words", "named_machines"), WRONG["machines"])
WRONG |= {"size_or_nothing": ("2 gigabytes", "GB", "1h", "-1")}
WRONG |= {"machine_codes": ("sm_75,banana", ",", "h100", "9.0", "12.8")}
WRONG |= {"architectures": (*WRONG["machine_codes"], "lto_90", "compute_999")}
WRONG |= {"packages": WRONG["environment"], "catalogue_place": WRONG["place"], "catalogue": WRONG["place"]}
# Of these kinds, nonsense that happens to be a name or a text that they take.
TAKES = {
    "new_file": ("banana", "-1", "9" * 30, "a\nb", "ü", "\udcff\udcfe", "1e999"),
    "new_folder": ("banana", "-1", "9" * 30, "a\nb", "ü", "\udcff\udcfe", "1e999", "../../etc/passwd"),
    "requirement": ("banana", "9" * 30, "1e999", "x" * 5000),
    "version": ("9" * 30,),
    "distribution": ("banana", "9" * 30, "1e999", "x" * 5000),
    "built": ("9" * 30,),
    "distributions": ("banana", "9" * 30, "1e999"),
    "variables": ("banana", "x" * 5000),
    "soname": tuple(each for each in NONSENSE if "/" not in each and len(each) < 256),
    "image": ("banana", "9" * 30, "1e999"),
    "line": ("banana", "-1", "9" * 30, "ü", "1e999", "../../etc/passwd"),
}

TAKES |= {
    "copy_place": TAKES["new_folder"],
    "lock_file": TAKES["new_folder"],
    "new_file_or_folder": TAKES["new_folder"],
}
# Options of which only the target tells what they may be.
FREE = (None,)
DEPENDING = {
    ("plan", "--read"): [["plan", "--read", ",;,"]],
    ("lab trials", "--good"): [["lab", "trials", "bisect", "FILE", "--good", "a==1", "--bad", "b==2"]],
    ("lab trials", "--bad"): [["lab", "trials", "bisect", "FILE", "--source", ".", "--good", "1"]],
    ("verify", "--check"): [],  # takes an interpreter
    ("inspect", "--kernels"): [],  # a name that no kernel has ends with 1
    ("inspect", "--against"): [],  # a target, as the first one: 3 or 4
}


def kind_of(row: Option) -> str | None:
    """None: any text may be a value of it."""
    if isinstance(row.kind, tuple) or "{" in row.value:
        return "choice"
    return row.kind.__name__ if row.kind else None


def options_of(called: Called) -> dict[str, str | None]:
    rows = flat(called.command.options)
    return {row.name: kind_of(row) for row in rows if row.flags and row.value}


OPTIONS = {name: options_of(each) for name, each in CALLED.items()}


def verb_and_action(verb: str, option: str) -> list[str]:
    """The words before an option: of a verb with actions, the first one that takes it."""
    command = CALLED[verb].command
    row = next(each for each in flat(command.options) if each.name == option)
    return [*CALLED[verb].words, *((row.of or tuple(command.actions))[:1] if command.actions else ())]


def every_option() -> list[tuple[str, str]]:
    return [(verb, option) for verb, options in OPTIONS.items() for option in options]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: all tests only look at them."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "FOLDER").mkdir()
    (folder / "FILE").touch()
    (folder / "NOT.json").write_text('{"schema": 7}')
    (folder / "NOT.toml").write_text("machine = 7")
    (folder / "SOURCE").mkdir()
    (folder / "SOURCE" / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    if os.name == "posix":  # elsewhere it is one more name of nothing
        os.mkfifo(folder / "PIPE")
    return folder


@pytest.fixture
def world(places: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = sorted(places.rglob("*"))
    monkeypatch.chdir(places)
    yield
    assert sorted(places.rglob("*")) == before


def refusal(words: list[str], option: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is wrong with how these words are refused."""
    row = f"cuwheel {' '.join(words)[:120]!r}"
    try:
        status = main(words)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, the other rows are tried too
        return [f"{row}: {error}"]
    shown = capsys.readouterr()
    wanted = {
        f"ends with {status}": status == 2,
        f"prints {shown.out[:80]!r}": shown.out == "",
        "the option is not named": option in shown.err,
        "no hint": "hint: " in shown.err,
        "a traceback": "Traceback" not in shown.err,
        f"{len(shown.err)} characters": len(shown.err) < 2000,
    }
    return [f"{row}: {what}" for what, is_right in wanted.items() if not is_right]


def test_every_kind_of_value_has_wrong_ones() -> None:
    """A kind that is added without a row fails here; so does a row of a kind that no option has."""
    kinds = {kind for options in OPTIONS.values() for kind in options.values()}
    assert kinds - set(FREE) == set(WRONG)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "kind", sorted({kind for options in OPTIONS.values() for kind in options.values() if kind in WRONG})
)
def test_a_bad_value_is_named_with_its_option(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every value that is wrong for the kind, with every option of the kind."""
    having = [(verb, option) for verb, options in OPTIONS.items() for option in options if options[option] == kind]
    values = (*WRONG[kind], *(each for each in NONSENSE if each not in TAKES.get(kind, ())))
    wrong = [
        each
        for verb, option in having
        for value in values
        for each in refusal([*verb_and_action(verb, option), f"{option}={value}"], option, capsys)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("value", EMPTY)
def test_no_option_takes_nothing(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    without = [("inspect", "--kernels")]  # empty means: given without a value
    having = [each for each in every_option() if each not in without]
    wrong = [
        each
        for verb, option in having
        for each in refusal([*verb_and_action(verb, option), f"{option}={value}"], option, capsys)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_depends_on_the_target_has_a_row() -> None:
    free = {(verb, option) for verb, options in OPTIONS.items() for option, kind in options.items() if kind in FREE}
    assert set(DEPENDING) == free


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("words", [words for rows in DEPENDING.values() for words in rows])
def test_what_does_not_fit_the_target(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert "hint: " in shown
    assert len(shown) < 2000


def test_all_bad_values_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--for",
        "banana,rtx 9999",
        "--driver",
        "12.99",
        "--torch-cuda",
        "h100",
        "--set",
        "os=plan9",
        "--set",
        "cpu=vax",
    ]
    assert main(["plan", *words, "--want", "future,no-ptx"]) == 2
    shown = capsys.readouterr().err
    assert "the command line has 6 problems" in shown
    for each in (
        "banana",
        "rtx 9999",
        "12.99",
        "--torch-cuda",
        "plan9",
        "vax",
        "cannot be wanted together",
    ):
        assert each in shown


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--driver", "cu128", "is not a driver version"),
        ("--driver", "9999.1", "the newest known branch is"),
        ("--torch-cuda", "570.86.10", "looks like a driver version"),
        ("--torch-cuda", "12", "add the minor"),
        ("--driver", "12.99", "no CUDA toolkit named '12.99'"),
        ("--set", "cpu=risc", "x86_64 or aarch64"),
        ("--set", "gpu=h100", "one of the keys python, torch, os, cpu, glibc"),
        ("--glibc", "2.35", "unknown option --glibc"),
        ("--on", "rtx 4900", "did you mean 'GeForce RTX 4090'"),
        ("--on", "qqqqqq", "lists all of them"),
        ("--env", "nowhere", "no such folder\nhint: python3 -m venv nowhere makes one"),
    ],
)
def test_what_is_meant_is_said(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing.so", option, value]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--torch-cuda", "cu128", "12.8"),
        ("--torch-cuda", "12.8.1", "12.8"),
        ("--driver", "12.2", "12.2"),
        ("--set", "jax-cuda=12", [("jax_cuda", "12")]),
        ("--driver", "580.65.06", "580.65.06"),
        ("--set", "python=cp311", [("python", "3.11")]),
        ("--set", "python=3.12.4", [("python", "3.12.4")]),
        ("--set", "python=python3.12", [("python", "3.12")]),
        ("--set", "python=cp313t", [("python", "3.13t")]),
        ("--set", "cpu=ARM64,os=Windows", [("cpu", "aarch64"), ("os", "windows")]),
        ("--set", "l4t=R36.4", [("l4t", "36.4")]),
        ("--set", "torch=2.7.1+cu128", [("torch", "2.7.1+cu128")]),
    ],
)
def test_the_ways_people_write_a_value(option: str, value: str, expected: object) -> None:
    args = frame.understood(["check", "x.so", option, value])[1]
    found = getattr(args, option.lstrip("-").replace("-", "_"))
    assert (list(found) if option == "--set" else found) == expected


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("check", ["x.so", "--on", "h100,9.0,sm_90a,rtx 4090", "--driver", "14.0"]),
        ("plan", ["--for", "all", "--cuda", "12.8,cu130,13", "--like", "torch==2.11.0"]),
        ("slim", ["x.whl", "--for", "this", "-o", "out/x.whl", "--version", "1.0+slim"]),
        ("build", ["--python", "3.12,cp311", "--set", "environment.A=", "--set", "config-settings.cmake.define.X=1,2"]),
        (
            "build",
            [
                "--set",
                "gate.allow=sm_75,library.so:compute_*",
                "--require",
                "torch>=2,<3",
                "--provider",
                "container=a.b/c:1@sha256:d",
            ],
        ),
        (
            "build",
            [
                "--provider",
                "redist=https://mirror.example/x,system",
                "--locked",
                "/",
                "--host-compiler",
                sys.executable,
            ],
        ),
        ("toolchain", ["install", "13.0", "--lock", "--with", "torch,cublas"]),
        ("doctor", ["--need", "cuda>=11.8", "--need", "torch-cuda"]),
        ("lookup cuda", ["--compiles", "100f"]),
        ("verify", ["x.whl", "--pass-env", "A,B_C", "--with", "pkg @ https://a.example/p.whl"]),
    ],
)
@pytest.mark.usefixtures("in_own_folder")
def test_good_values_are_taken(verb: str, words: list[str]) -> None:
    frame.understood([*verb.split(), *words])


def test_an_environment_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.12/site-packages/foo-1.dist-info").mkdir(parents=True)
    site = tmp_path / "lib/python3.12/site-packages"
    for verb, place in (("inspect", tmp_path), ("inspect", site), ("check", tmp_path), ("slim", tmp_path)):
        frame.understood([verb, "foo", "--env", str(place)])
    shutil.rmtree(tmp_path / "lib")
    (tmp_path / ".cuwheel").mkdir()  # slimmed, and there is a way back whatever else went
    frame.understood(["slim", "--env", str(tmp_path), "--undo"])


def test_machines_to_judge_for_are_looked_up_once(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('[[machine]]\nname = "a"\ngpu = "h100"\n', encoding="utf-8")
    fleet = values.machines(str(tmp_path / "fleet.toml"))
    (tmp_path / "fleet.toml").unlink()  # nobody reads it again
    found = machines_asked_for([*fleet, *values.machines("l40, 9.0")])
    assert [(each.name, each.gpu) for each in found] == [("a", "H100"), ("l40", "L40"), ("9.0", None)]
    assert values.machines("this") == ["this"]
