"""`find` ends early: at the first release that runs, when its budget is spent, or at Ctrl-C, with what it knows."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery import search_policy
from cuwheel.delivery.search_policy import Limits
from cuwheel.device_code import starts
from cuwheel.errors import EXIT_INTERRUPTED
from cuwheel.machine.fleet import Refinement
from cuwheel.network import remote, venvs
from cuwheel_core.errors import MalformedError, UnknownNameError
from tests.fixtures import servers
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.delivery.find_answer import Find

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"
LINUX = Refinement(os="linux", cpu="x86_64", glibc="2.36", python="3.11", driver="580.65.06")
TAG = "py3-none-manylinux_2_28_x86_64"
NATIVE = "plain-130.so"  # 8.0, 9.0 and PTX for 9.0
BLACKWELL = "family-130.so"  # none of it for 9.0


def _wheel(folder: Path, version: str, padding: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{version}-{TAG}.whl"
    info = f"demo-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(FIXTURES / NATIVE, "demo/libdemo.so")
        if padding:
            archive.writestr(zipfile.ZipInfo("demo/libpadding.so"), b"\x7fELF" + os.urandom(padding))
        archive.writestr("demo/__init__.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {TAG}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


def _find(wanted: str = "demo", **fields: Any) -> Find:
    return api.find(wanted, **{"on": ["h100"], "refine": LINUX, **fields})


def _chosen(answer: Find) -> str | None:
    return next((each.version for each in answer.candidates if each.chosen), None)


def _read(behaviour: Behaviour) -> set[str]:
    return {path.split("-")[1] for _, path, _ in behaviour.asked if path.endswith(".whl")}


def test_it_stops_at_the_first_that_runs_and_all_judges_every_release(tmp_path: Path) -> None:
    made = [_wheel(tmp_path / "dist", f"{number}.0") for number in (1, 2, 3)]
    behaviour = Behaviour.of(*made)
    with serving(behaviour) as url:
        first = _find(indexes=[f"{url}/simple"])
        assert _read(behaviour) == {"3.0"}
        every = _find(indexes=[f"{url}/simple"], all_releases=True)
    assert (_chosen(first), first.judged, first.releases, first.stopped) == ("3.0", 1, 3, None)
    assert (_chosen(every), every.judged, every.releases) == ("3.0", 3, 3)
    assert [each.outcome for each in every.candidates] == ["native"] * 3


def test_patches_before_one_that_fails_are_not_read_unless_they_are_another_build(tmp_path: Path) -> None:
    made = [wheel(tmp_path / "dist", "demo", each, library=BLACKWELL, tag=TAG) for each in ("1.1.2", "1.1.1")]
    other = wheel(tmp_path / "dist", "demo", "1.1.0+cu130", library=NATIVE, tag=TAG)
    behaviour = Behaviour.of(*made, other)
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
        assert _read(behaviour) == {"1.1.2", "1.1.0+cu130"}
        every = _find(indexes=[f"{url}/simple"], all_releases=True)
    assert _chosen(answer) == _chosen(every) == "1.1.0+cu130"
    why = {each.version: each.reasons[0] for each in answer.candidates}
    assert why["1.1.1"] == "not looked into: a later patch of it does not run"
    assert every.judged == 3


def test_where_nothing_runs_no_patch_is_read_between_two_that_fail_alike(tmp_path: Path) -> None:
    made = [wheel(tmp_path / "dist", "demo", f"1.1.{number}", library=BLACKWELL, tag=TAG) for number in range(5)]
    behaviour = Behaviour.of(*made)
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
    assert (_chosen(answer), answer.judged, answer.stopped) == (None, 2, None)
    assert _read(behaviour) == {"1.1.4", "1.1.0"}
    why = {each.version: each.reasons[0] for each in answer.candidates}
    assert why["1.1.2"] == "not looked into: neither 1.1.0 nor 1.1.4 runs"


def test_where_the_oldest_patch_runs_the_newest_that_does_is_found(tmp_path: Path) -> None:
    libraries = {0: NATIVE, 1: NATIVE, 2: BLACKWELL, 3: BLACKWELL}
    made = [wheel(tmp_path / "dist", "demo", f"1.1.{each}", library=it, tag=TAG) for each, it in libraries.items()]
    with serving(Behaviour.of(*made)) as url:
        assert _chosen(_find(indexes=[f"{url}/simple"])) == "1.1.1"


@pytest.mark.parametrize(
    ("libraries", "chosen"),
    [
        ({"2.1.2": BLACKWELL, "2.1.1": NATIVE, "2.1.0": NATIVE, "2.0.1": NATIVE, "1.0": NATIVE}, "2.1.1"),
        ({"2.1.2": BLACKWELL, "2.1.1": NATIVE, "2.1.0": BLACKWELL, "2.0.1": NATIVE, "1.0": NATIVE}, "2.0.1"),
        ({"2.1.1": BLACKWELL, "2.1.0": BLACKWELL, "2.0.1": BLACKWELL, "2.0.0": NATIVE, "1.0": BLACKWELL}, "2.0.0"),
    ],
)
def test_the_answer_is_the_same_whatever_the_cache_holds(
    tmp_path: Path, libraries: dict[str, str], chosen: str
) -> None:
    """With nothing in the cache, with all that this question and any other puts there, and with every part of that."""
    made = [wheel(tmp_path / "dist", "demo", version, library=it, tag=TAG) for version, it in libraries.items()]
    cache, full = tmp_path / "cuwheel-cache", tmp_path / "full"
    with serving(Behaviour.of(*made)) as url:
        assert _chosen(_find(indexes=[f"{url}/simple"], all_releases=True)) in libraries
        cache.rename(full)
        kept = sorted(each.relative_to(full) for each in (full / "facts-files").rglob("*.json"))
        assert len(kept) == len(libraries)
        for held in chain.from_iterable(combinations(kept, count) for count in range(len(kept) + 1)):
            for each in held:
                (cache / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(full / each, cache / each)
            assert _chosen(_find(indexes=[f"{url}/simple"])) == chosen, held
            shutil.rmtree(cache)


def test_what_is_known_of_libraries_for_another_processor_is_not_kept(tmp_path: Path) -> None:
    """Wheels for any platform may hold them: of those the first bytes were read, for such machines alone."""
    made = wheel(tmp_path / "dist", "demo", "1.0", library=NATIVE, tag="py3-none-any")
    arm = Refinement(os="linux", cpu="aarch64", python="3.11", driver="580.65.06")
    with serving(Behaviour.of(made)) as url:
        other = _find(indexes=[f"{url}/simple"], refine=arm).candidates[0]
        own = _find(indexes=[f"{url}/simple"]).candidates[0]
    assert (other.outcome, other.reasons) == ("fails", ("it is for x86_64 and this machine has aarch64",))
    assert (own.outcome, own.known_from) == ("native", "wheel")


def test_a_version_that_no_index_has_and_extras(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [_wheel(tmp_path / "dist", f"{number}.0") for number in (1, 2)]
    with serving(Behaviour.of(*made)) as url:
        options = ["--index", f"{url}/simple", "--on", "h100", "--set", "python=3.11,os=linux,cpu=x86_64"]
        assert main(["find", "demo==7.0", *options]) == UnknownNameError.exit_code
        assert "hint: your indexes have 1.0 to 2.0\n  cuwheel find demo\n" in capsys.readouterr().err
        assert main(["find", "demo[all,some]", *options]) == 0
        assert "cuwheel install 'demo[all,some]==2.0'" in capsys.readouterr().out
        assert main(["find", "demonstration", *options, "--no-index"]) == UnknownNameError.exit_code
    assert "check the spelling, or name its index with --index" in " ".join(capsys.readouterr().err.split())


def test_of_releases_that_count_in_the_third_number_none_is_a_patch(tmp_path: Path) -> None:
    made = wheel(tmp_path / "dist", "demo", "0.0.35", library=BLACKWELL, tag=TAG)
    older = wheel(tmp_path / "dist", "demo", "0.0.30", library=NATIVE, tag=TAG)
    with serving(Behaviour.of(made, older)) as url:
        assert _chosen(_find(indexes=[f"{url}/simple"])) == "0.0.30"


def test_of_a_large_library_the_start_is_read_and_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch loads libtorch_cuda.so whatever else it has: where that one fails, nothing else is read."""
    monkeypatch.setattr(starts, "LARGE", 3_000)
    monkeypatch.setattr(starts, "_WITHOUT_CODE", 1)
    (tmp_path / "dist").mkdir()
    for version, library in (("2.15.0", BLACKWELL), ("2.14.0", NATIVE)):
        info = f"torch-{version}.dist-info"
        with zipfile.ZipFile(tmp_path / "dist" / f"torch-{version}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(FIXTURES / library, "torch/lib/libtorch_cuda.so")
            archive.writestr("torch/lib/libtorch_cpu.so", b"\x7fELF" + os.urandom(2_000_000))
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {TAG}\n")
            archive.writestr(f"{info}/RECORD", "")
    with serving(Behaviour.of(*(tmp_path / "dist").iterdir())) as url:
        answer = _find("torch", indexes=[f"{url}/simple"], catalogues=["none"])
        again = _find("torch", indexes=[f"{url}/simple"], catalogues=["none"])
    assert (_chosen(answer), answer.stopped) == ("2.14.0", None)
    chosen, failing = answer.candidates
    assert any("of libtorch_cuda.so the first" in each for each in chosen.conditions)
    assert any("libtorch_cpu.so: not read" in each for each in chosen.conditions)
    assert failing.predicted_error is not None
    assert [each.known_from for each in again.candidates] == ["cache", "wheel"], "kept only what holds on any machine"
    assert again.candidates[0].conditions == chosen.conditions


def test_facts_of_older_releases_are_not_asked_for_once_one_runs(tmp_path: Path) -> None:
    """An index of ours may have thousands of releases, each with a facts file."""
    made = [wheel(tmp_path / "dist", "demo", f"{number}.0", library=NATIVE, tag=TAG) for number in range(1, 41)]
    api.publish(made, to=tmp_path / "index")
    behaviour = Behaviour.folder(tmp_path / "index")
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
        asked = {path for _, path, _ in behaviour.asked if path.endswith(".cuwheel.json")}
        every = _find(indexes=[f"{url}/simple"], all_releases=True)
    assert _chosen(answer) == _chosen(every) == "40.0"
    assert len(asked) <= 8
    assert every.judged == 40


def test_a_spent_budget_gives_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3.0 to 8.0 are larger than what may be read; 7.5 fits."""
    made = [_wheel(tmp_path / "dist", f"{number}.0", 3_000_000) for number in range(3, 9)]
    small = _wheel(tmp_path / "dist", "7.5")
    behaviour = Behaviour.of(*made, small)
    with serving(behaviour) as url:
        options = ["--index", f"{url}/simple", "--on", "h100", "--driver", "580.65.06", "--set", "python=3.11"]
        words = ["find", "demo", *options, "--set", "os=linux,cpu=x86_64", "--budget", "2MB"]
        anew = ["demo>7.5", *words[2:]]
        assert main([*words, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert main(["find", *anew]) == 1
        nothing = capsys.readouterr().out
    assert next(each["version"] for each in told["candidates"] if each["chosen"]) == "7.5"
    assert (told["judged"], told["releases"], told["stopped"]) == (1, 7, "budget")
    assert told["downloaded"] <= 2_000_000
    assert "1 of 7 releases judged; the newest that runs among them is 7.5" in " ".join(shown.split())
    assert "No release of demo is known to run" in nothing
    assert "0 of 1 release judged (a larger --budget reads more)" in " ".join(nothing.split())
    assert "not read: reading it takes 3.0 MB, more than is left of --budget" in " ".join(nothing.split())


def test_older_wheels_that_fit_are_read_where_newer_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [_wheel(tmp_path / "dist", f"{number}.0", 1_000_000) for number in range(2, 9)]
    behaviour = Behaviour.of(*made, _wheel(tmp_path / "dist", "1.0"))
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"], budget=800_000)
        assert (_chosen(answer), answer.stopped, answer.judged, answer.releases) == ("1.0", "budget", 1, 8)
        behaviour.asked.clear()
        monkeypatch.setattr(search_policy, "LIMITS", Limits(large=2))
        answer = _find(indexes=[f"{url}/simple"], budget=800_001, find_links=[])
    assert (_chosen(answer), answer.stopped) == ("1.0", "budget"), "kept facts cost nothing"
    assert _read(behaviour) == {"8.0", "7.0"}
    assert answer.candidates[-1].reasons == (
        "not looked into: 2 newer wheels were larger than what is left of --budget",
    )


def test_older_releases_known_to_have_no_device_code_are_enough(tmp_path: Path) -> None:
    """Three of them, read or known by their facts: then the newest is taken, and no wheel is opened."""
    made = [wheel(tmp_path / "dist", "demo", f"{number}.0", tag=TAG) for number in range(1, 7)]
    api.publish(made, to=tmp_path / "index")
    for number in (1, 2):
        (tmp_path / "index" / "files" / f"demo-{number}.0-{TAG}.whl.cuwheel.json").unlink()
    behaviour = Behaviour.folder(tmp_path / "index")
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
    assert (_chosen(answer), answer.judged, _read(behaviour)) == ("6.0", 4, set())


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C reaches a whole console there")
def test_ctrl_c_gives_what_is_known(tmp_path: Path) -> None:
    """2.0 is known from an earlier run; 3.0 comes without end."""
    known = _wheel(tmp_path / "dist", "2.0")
    endless = _wheel(tmp_path / "dist", "3.0", 3_000_000)
    behaviour = Behaviour.of(known, endless)
    reached, ended = threading.Event(), threading.Event()

    class Stuck(dict[str, bytes]):
        """Files of the server, one of which never comes."""

        def __getitem__(self, path: str) -> bytes:
            if path.endswith(endless.name):
                reached.set()
                ended.wait(60)
            return super().__getitem__(path)

    with serving(behaviour) as url:
        words = [sys.executable, "-m", "cuwheel", "find", "demo", "--index", f"{url}/simple", "--on", "h100"]
        words += ["--driver", "580.65.06", "--set", "python=3.11,os=linux,cpu=x86_64"]
        before = subprocess.run([*words[:4], "demo<3", *words[5:]], capture_output=True, text=True, check=True)
        assert "demo 2.0 runs" in before.stdout
        behaviour.files = Stuck(behaviour.files)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert reached.wait(60)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        finally:
            ended.set()
            process.kill()
    assert process.returncode == EXIT_INTERRUPTED
    assert "1 of 2 releases judged; the newest that runs among them is 2.0 (interrupted)" in " ".join(out.split())


def test_within_one_command_a_page_is_asked_for_once_and_missing_facts_too(tmp_path: Path) -> None:
    """Where the torch that comes along does not run, both packages are looked for again and again."""
    dist = tmp_path / "dist"
    made = [
        wheel(dist, "demo", f"{number}.0", library=NATIVE, requires=f"torch=={number}.0", tag=TAG) for number in (1, 2)
    ]
    made += [
        wheel(dist, "torch", f"{number}.0", library=name, tag=TAG) for number, name in ((1, NATIVE), (2, BLACKWELL))
    ]
    behaviour = Behaviour.of(*made)
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"], catalogues=["none"])
    assert _chosen(answer) == "1.0"
    pages = [path for _, path, _ in behaviour.asked if path.startswith("/simple/") and path != "/simple/"]
    assert sorted(pages) == ["/simple/demo/", "/simple/torch/"]
    assert sum(path.endswith(".cuwheel.json") for _, path, _ in behaviour.asked) <= 3


def test_a_torch_too_large_to_be_looked_into_is_said(tmp_path: Path) -> None:
    large = {"torch/libpadding.so": b"\x7fELF" + os.urandom(1_000_000)}
    made = [
        wheel(tmp_path / "dist", "demo", "1.0", library=NATIVE, requires="torch", tag=TAG),
        wheel(tmp_path / "dist", "torch", "1.0", library=NATIVE, members=large, tag=TAG),
    ]
    with serving(Behaviour.of(*made)) as url:
        answer = _find(indexes=[f"{url}/simple"], catalogues=["none"], budget=600_000)
    assert (_chosen(answer), answer.stopped) == ("1.0", "budget")
    assert "the torch that it brings along was not looked into" in " ".join(answer.candidates[0].conditions)


def test_the_catalogue_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = _wheel(tmp_path / "dist", "1.0")
    behaviour = Behaviour.of(made)
    facts = tmp_path / "facts"
    with serving(behaviour) as url:
        place: Any = {"indexes": [f"{url}/simple"]}
        api.catalogue(["demo"], to=facts, **place)
        known = _find(catalogues=[str(facts)], **place)
        (tmp_path / "cuwheel-cache").rename(tmp_path / "gone")
        words = ["find", "demo", "--on", "h100", "--set", "python=3.11,os=linux,cpu=x86_64"]
        assert main([*words, "--index", f"{url}/simple", "--catalogue", "none", "--json"]) == 0
    assert known.candidates[0].known_from in ("cache", "catalogue")
    assert json.loads(capsys.readouterr().out)["candidates"][0]["known_from"] == "wheel"


@contextlib.contextmanager
def _dripping(page: bytes) -> Iterator[tuple[str, list[str]]]:
    """Answers with the page at once, and of every wheel a byte each tenth of a second, for ever."""
    asked: list[str] = []
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_wheel = self.path.endswith(".whl")
            asked.extend([self.path] if is_wheel else [])
            if not is_wheel and not self.path.startswith("/simple"):
                self.send_error(404)
                return
            self.send_response(206 if is_wheel else 200)
            length = 65_536 if is_wheel else len(page)
            self.send_header("Content-Length", str(length))
            if is_wheel:
                self.send_header("Content-Range", "bytes 934464-999999/1000000")
            self.end_headers()
            if not is_wheel:
                self.wfile.write(page)
                return
            with contextlib.suppress(OSError):
                while not ended.wait(0.1):
                    self.wfile.write(b"x")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with servers.answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        try:
            yield url, asked
        finally:
            ended.set()


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not wheel after wheel: three are tried, each for so long, and the answer says why."""
    monkeypatch.setattr(remote, "_PATIENCE_S", 0.5)
    names = [f"demo-{number}.0-{TAG}.whl" for number in range(20)]
    page = "".join(f'<a href="/files/{each}#sha256={"ab" * 32}">{each}</a>' for each in names).encode()
    began = time.monotonic()
    with _dripping(page) as (url, asked):
        answer = _find(indexes=[f"{url}/simple"])
    assert time.monotonic() - began < 20
    assert (answer.stopped, answer.judged, answer.releases) == ("slow", 0, 20)
    assert len(asked) == 3
    assert "it comes too slowly" in answer.candidates[0].reasons[0]


def test_a_page_of_two_hundred_thousand_files_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    links = "".join(f'<a href="/files/demo-1.{number}-{TAG}.whl">x</a>' for number in range(200_000))
    behaviour = Behaviour(files={"/simple/demo/": links.encode(), "/simple/": b""})
    began = time.process_time()
    with serving(behaviour) as url:
        assert main(["find", "demo", "--index", f"{url}/simple", "--on", "h100"]) == MalformedError.exit_code
    assert "lists more than 100,000 files" in capsys.readouterr().err
    assert time.process_time() - began < 20


def test_a_server_that_lies_about_a_wheel(tmp_path: Path) -> None:
    """A file of another size than announced is not judged; hashes are for whole files, which `install` takes."""
    made = _wheel(tmp_path / "dist", "1.0")
    behaviour = Behaviour.of(made)
    row = {"filename": made.name, "url": f"/files/{made.name}", "hashes": {"sha256": "ab" * 32}, "size": 5}
    page = {"meta": {"api-version": "1.1"}, "name": "demo", "files": [row]}
    behaviour.files["/simple/demo/"] = json.dumps(page).encode()
    behaviour.headers["Content-Type"] = "application/vnd.pypi.simple.v1+json"
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
    assert _chosen(answer) is None
    assert "5 were announced: it is another file" in answer.candidates[0].reasons[0]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["find", "install"])
def test_two_hundred_first_runs_under_load(tmp_path: Path, verb: str) -> None:
    """Each in a process of its own with an empty cache, four at once: none crashes, all say the same."""
    made = [wheel(tmp_path / "dist", "demo", f"{number}.0", library=NATIVE, tag=TAG) for number in range(1, 13)]
    api.publish(made, to=tmp_path / "index")
    env = tmp_path / "env"
    venvs.make(env, venvs.find_python())
    with serving(Behaviour.folder(tmp_path / "index")) as url:
        words = [sys.executable, "-m", "cuwheel", verb, "demo", "--index", f"{url}/simple", "--on", "h100", "--json"]
        words += ["--driver", "580.65.06", *(["--env", str(env), "--dry-run"] if verb == "install" else [])]

        def run(number: int) -> tuple[int, str | None]:
            environ = {**os.environ, "CUWHEEL_CACHE": str(tmp_path / f"cache-{number}")}
            done = subprocess.run(words, capture_output=True, env=environ, check=False, timeout=600)
            told = json.loads(done.stdout) if done.returncode == 0 else {"candidates": []}
            return done.returncode, next((each["version"] for each in told["candidates"] if each["chosen"]), None)

        with ThreadPoolExecutor(4) as pool:
            ended = list(pool.map(run, range(200)))
    assert set(ended) == {(0, "12.0")}
