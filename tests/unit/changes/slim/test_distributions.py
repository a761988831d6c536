from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from cuwheel import api
from cuwheel.changes.binaries import rewrite
from cuwheel.changes.slim import act as slim
from cuwheel.changes.slim import decide
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.cli import main
from cuwheel.errors import UsageError
from cuwheel.support import codec, files
from cuwheel.wheel import journal_file
from cuwheel_core.errors import UnknownNameError, UnreadableError
from cuwheel_core.support.finding import Finding
from tests.fixtures import systems
from tests.unit.changes.slim.packages import BIN, FOO, contents, make_environment, snapshot, wrong_records

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.changes.slim.answer import Slim
    from cuwheel.changes.slim.request import SlimTask

H100 = ("h100",)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    make_environment(tmp_path / "env")
    return tmp_path / "env"


def site_of(env: Path) -> Path:
    return env / "lib" / "python3.11" / "site-packages"


def run(env: Path, *names: str, **more: object) -> Slim:
    return slim.slim(SlimRequest(names, machines=H100, env=env, **more))  # type: ignore[arg-type]


def test_in_place_and_back(env: Path) -> None:
    before = snapshot(env)
    made = run(env)
    assert made.written
    assert made.undo == f"cuwheel slim --undo --env {env}"
    assert {each.path.rpartition("/")[2] for each in made.files if each.fate == "slimmed"} == {
        "libfoo.so",
        "libbar.so.1",
        "libbitsandbytes_cuda124.so",
        "libbitsandbytes_cuda128.so",
        "libbitsandbytes_cuda130.so",
    }
    assert wrong_records(site_of(env)) == []
    after = snapshot(env)
    for path, (_, mode, changed) in before.items():
        if path.endswith((".so", ".so.1")):
            assert after[path][1:] == (mode, changed)
    slim.undo(env)
    assert snapshot(env) == before
    assert not (env / ".cuwheel").exists()


def test_commit_at_once(env: Path) -> None:
    made = run(env, commit=True)
    assert made.undo is None
    assert not (env / ".cuwheel").exists()
    assert wrong_records(site_of(env)) == []
    with pytest.raises(UnreadableError, match="no journal"):
        slim.undo(env)


def test_commit_later(env: Path) -> None:
    run(env)
    made = slim.commit(env)
    assert [each.rule for each in made.findings] == ["committed"]
    assert not (env / ".cuwheel").exists()


def test_the_note_tells_of_each_run(env: Path) -> None:
    both = ("h100", "t4")
    slim.slim(SlimRequest(("foo",), machines=both, env=env))
    run(env)
    note = msgspec.json.decode((site_of(env) / "foo-1.0.dist-info" / "cuwheel-slim.json").read_bytes())
    assert note["targets"] == ["h100 (9.0)"]
    assert [each["targets"] for each in note["earlier"]] == [["h100 (9.0)", "t4 (7.5)"]]
    assert wrong_records(site_of(env)) == []


def test_again_changes_nothing(env: Path) -> None:
    run(env)
    before = contents(env)
    made = run(env)
    assert not made.written
    assert contents(env) == before


def test_some_distributions_alone(env: Path) -> None:
    made = run(env, "FOO")
    assert {each.path.split("/")[-2] for each in made.files} == {"foo", "lib"}
    with pytest.raises(UnknownNameError, match="nope"):
        run(env, "nope")


def test_one_cuda_removes_the_other_libraries(env: Path) -> None:
    before = snapshot(env)
    made = run(env, cuda="12.8")
    site = site_of(env)
    assert sorted(each.name for each in (site / "bitsandbytes").glob("*.so")) == ["libbitsandbytes_cuda128.so"]
    assert wrong_records(site) == []
    assert sum(each.fate == "removed" for each in made.files) == 2
    slim.undo(env)
    assert snapshot(env) == before


def test_a_dry_run_touches_nothing(env: Path) -> None:
    before = snapshot(env)
    made = run(env, dry_run=True)
    assert not made.written
    assert made.total.bytes_after < made.total.bytes_before
    assert snapshot(env) == before


def test_a_cache_is_never_modified_through_its_links(env: Path, tmp_path: Path) -> None:
    """uv hard-links by default, and can link symbolically."""
    cache = tmp_path / "cache"
    cache.mkdir()
    hard, soft = site_of(env) / "foo" / "libfoo.so", site_of(env) / "foo" / "lib" / "libbar.so.1"
    os.link(hard, cache / "hard.so")
    shutil.move(soft, cache / "soft.so")
    soft.symlink_to(cache / "soft.so")
    before = snapshot(cache)
    made = run(env)
    assert snapshot(cache) == before
    assert not soft.is_symlink()
    assert soft.stat().st_size < (cache / "soft.so").stat().st_size
    assert made.written
    slim.undo(env)
    assert soft.readlink() == cache / "soft.so"
    assert hard.samefile(cache / "hard.so")


def test_links_within_the_environment_stay_links(env: Path) -> None:
    folder = site_of(env) / "foo" / "lib"
    (folder / "libbar.so").symlink_to("libbar.so.1")
    made = run(env)
    assert (folder / "libbar.so").is_symlink()
    assert [each.path for each in made.files if "libbar" in each.path] == [
        "lib/python3.11/site-packages/foo/lib/libbar.so.1"
    ]


def test_a_conda_environment_has_libraries_beside_python(env: Path) -> None:
    (env / "conda-meta").mkdir()
    shutil.copy(BIN / "all-124.so", env / "lib" / "libconda.so")
    made = run(env)
    assert {"lib/libconda.so", "lib/python3.11/site-packages/foo/libfoo.so"} <= {each.path for each in made.files}
    assert [each.rule for each in made.findings] == ["in-no-record"]
    assert wrong_records(site_of(env)) == []


def test_refused_changes_nothing(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = decide.decide_library
    no = Finding(rule="would-lose-code", severity="error", message="h100 would be left without code")

    def refuse(one: object, task: SlimTask, _made: object) -> object:
        from msgspec.structs import replace

        return replace(decided(one, task), refused=(no,))  # type: ignore[arg-type]

    monkeypatch.setattr(decide, "decide_library", refuse)
    before = snapshot(env)
    made = run(env)
    assert made.refused
    assert "would-lose-code" in {each.rule for each in made.findings}
    assert snapshot(env) == before


def test_a_full_disk_changes_nothing(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    before = snapshot(env)
    monkeypatch.setattr(rewrite, "slim_library", full)
    with pytest.raises(UnreadableError, match="No space left") as raised:
        run(env)
    assert "nothing was changed" in raised.value.hint
    assert snapshot(env) == before
    assert not (env / ".cuwheel").exists()


def test_too_little_room_is_known_before_any_work(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(env)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    monkeypatch.setattr(rewrite, "slim_library", None)
    with pytest.raises(UnreadableError, match=r"are needed there and 1\.0 kB are free"):
        run(env)


def test_a_second_run_at_the_same_time(env: Path) -> None:
    before = snapshot(env)
    with files.folder_lock(journal_file.folder_of(env.resolve())):
        for attempt in (run, slim.undo, slim.commit):
            with pytest.raises(UnreadableError, match="another cuwheel"):
                attempt(env)
        assert run(env, dry_run=True).files  # looking is allowed
    assert snapshot(env) == before


def test_not_an_environment(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="not a Python environment"):
        run(tmp_path)


def test_a_folder_in_place(env: Path) -> None:
    site = site_of(env)
    before = snapshot(site)
    made = slim.slim(SlimRequest((site,), machines=H100))
    assert made.written
    assert wrong_records(site) == []
    assert slim.slim(SlimRequest((site,), machines=H100)).written is False  # originals are not libraries of it
    slim.undo(site)
    assert snapshot(site) == before


def test_a_folder_copied(env: Path, tmp_path: Path) -> None:
    site, output = site_of(env), tmp_path / "out"
    before = snapshot(site)
    made = slim.slim(SlimRequest((site,), machines=H100, output=output))
    assert made.output == str(output)
    assert snapshot(site) == before
    assert wrong_records(output) == []
    assert contents(output).keys() == contents(site).keys() | {
        f"{name}.dist-info/cuwheel-slim.json" for name in ("foo-1.0", "bitsandbytes-0.50")
    }
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    with pytest.raises(UsageError, match="not empty"):
        slim.slim(SlimRequest((site,), machines=H100, output=output))
    with pytest.raises(UsageError, match="is inside"):
        slim.slim(SlimRequest((site,), machines=H100, output=site / "new"))


def test_libraries_elsewhere(tmp_path: Path) -> None:
    names = ("all-124.so", "names-130.so", "amd.so")
    for name, data in zip(
        names, (FOO["foo/libfoo.so"], FOO["foo/lib/libbar.so.1"], FOO["foo/libhost.so"]), strict=True
    ):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o755)
    before = snapshot(tmp_path)
    targets = tuple(tmp_path / name for name in names)
    made = slim.slim(SlimRequest(targets, machines=H100, output=tmp_path / "out"))
    assert made.written
    sizes = {path.name: path.stat() for path in (tmp_path / "out").iterdir()}
    assert sizes.keys() == set(names)
    assert sizes["all-124.so"].st_size < targets[0].stat().st_size
    assert (tmp_path / "out" / "amd.so").read_bytes() == FOO["foo/libhost.so"]
    if os.name == "posix":  # Windows keeps no mode bits
        assert all(status.st_mode & 0o777 == 0o755 for status in sizes.values())
    assert {path: state for path, state in snapshot(tmp_path).items() if "/" not in path} == before
    one = slim.slim(SlimRequest(targets[:1], machines=H100, output=tmp_path / "new" / "x.so"))
    assert one.output == str(tmp_path / "new" / "x.so")
    assert (tmp_path / "new" / "x.so").is_file()
    with pytest.raises(UsageError, match="would overwrite itself"):
        slim.slim(SlimRequest(targets, machines=H100, output=tmp_path))


def test_a_library_that_would_not_shrink_stays_that_of_its_package(tmp_path: Path) -> None:
    """Less than a page of it could be cut."""
    make_environment(tmp_path / "env", {("foo", "1.0"): {"foo/libfoo.so": (BIN / "plain-130.so").read_bytes()}})
    before = snapshot(tmp_path / "env")
    made = run(tmp_path / "env")
    assert [each.fate for each in made.files] == ["unchanged"]
    assert snapshot(tmp_path / "env") == before


def test_a_dist_info_that_is_linked_to_another_environment_stays_that_ones(env: Path, tmp_path: Path) -> None:
    """A stranger's folder whose metadata is a link to yours: its libraries are slimmed, your RECORD is not touched."""
    stranger = tmp_path / "stranger"
    shutil.copytree(site_of(env) / "foo", stranger / "foo")
    (stranger / "foo-1.0.dist-info").symlink_to(site_of(env) / "foo-1.0.dist-info")
    before = snapshot(env)
    made = slim.slim(SlimRequest((str(stranger),), machines=H100))
    assert made.written
    slim.undo(stranger)
    assert snapshot(env) == before


def test_undo_says_no_where_something_could_not_be_restored(env: Path) -> None:
    original = (site_of(env) / "foo" / "libfoo.so").read_bytes()
    api.slim(env=env, machines=["h100"])
    (site_of(env) / "foo" / "libfoo.so").write_bytes(b"rebuilt")
    undone = api.slim_undo(env)
    assert not undone.succeeded
    assert (site_of(env) / "foo" / "libfoo.so").read_bytes() == b"rebuilt"
    assert "lib/python3.11/site-packages/foo/libfoo.so" not in {each.path for each in undone.files}
    assert [path.read_bytes() for path in env.glob(".cuwheel/slim/*/originals/*")] == [original]
    assert api.slim_commit(env).succeeded
    assert not (env / ".cuwheel").exists()


@systems.posix("has names of text alone")
def test_names_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the environment, a library, and the row of RECORD that lists it: bytes are bytes, there and back."""
    odd = os.fsdecode(b"caf\xe9 \\xe9")
    env = tmp_path / odd
    site = make_environment(env)
    library_ = site / "foo" / f"{odd}.so"
    shutil.copy(BIN / "all-124.so", library_)
    (listed,) = site.glob("foo-*.dist-info/RECORD")
    listed.write_bytes(os.fsencode(f"foo/{odd}.so,sha256=x,1\n") + listed.read_bytes())
    before = snapshot(env)
    size = library_.stat().st_size
    assert main(["slim", "--env", str(env), "--for", "h100,a100", "--json"]) == 0, capsys.readouterr()
    assert library_.stat().st_size < size
    assert os.fsencode(f"foo/{odd}.so,sha256=x,") not in listed.read_bytes()
    assert os.fsencode(f"foo/{odd}.so,sha256=") in listed.read_bytes()
    told = codec.indented({"path": odd, "earlier": msgspec.Raw(b'{"path":"x"}')})  # as the note of a second run
    assert codec.decode(told) == {"path": "caf\ufffd \\xe9", "earlier": {"path": "x"}}
    assert main(["slim", "--env", str(env), "--undo", "--json"]) == 0, capsys.readouterr()
    assert snapshot(env) == before
