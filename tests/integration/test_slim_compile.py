"""`slim --compile` with the real ptxas: machine code is kept, made of PTX where there was no other, and undone."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import cuwheel
from cuwheel.changes.graft.answer import Note
from cuwheel.cli import main
from cuwheel.support import codec
from tests.integration import test_graft_compile as grafted
from tests.integration.test_graft import library as compiled_library
from tests.integration.test_graft import load
from tests.integration.test_graft_compile import codes

if TYPE_CHECKING:
    import pytest

home = grafted.home  # a cache of its own


def test_a_wheel_as_by_two_passes(tmp_path: Path, home: Path) -> None:
    wheel = grafted._wheel(tmp_path / "in")
    slim = partial(cuwheel.slim, wheel, machines=["b200"], compile=True, output=tmp_path / "out")
    planned = slim(dry_run=True)
    assert not list(home.glob("machine-code/*/*"))
    assert planned.seconds
    assert {each.arch for each in planned.compiled} == {"sm_100"}
    made = slim()
    assert made.output == planned.output
    output = Path(made.output or "")
    assert output.name == "foo-1.0+sm100.slim-py3-none-any.whl"
    assert [(each.before, each.after) for each in made.reached] == [("jit", "native")] * 2
    assert {row.arch: row.count for each in made.files for row in each.added} == {"sm_100": 2}
    assert cuwheel.check(output, on=["b200"]).verdicts[0].outcome == "native"
    info = "foo-1.0+sm100.slim.dist-info"
    note = codec.decode(grafted._member(output, f"{info}/cuwheel-graft.json"), Note)
    assert {(each.library, each.arch) for each in note.compiled} == {
        ("foo/libfoo.so", "sm_100"),
        ("foo/libmore.so", "sm_100"),
    }
    assert grafted._member(output, f"{info}/cuwheel-slim.json")
    first = cuwheel.graft(wheel, compile=["b200"], output=tmp_path / "first").outputs[0]
    second = Path(cuwheel.slim(first, machines=["b200"], output=tmp_path / "second").output or "")
    assert second.name == output.name
    assert grafted._member(second, "foo/libfoo.so") == grafted._member(output, "foo/libfoo.so")


def test_an_environment_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "env"
    site = grafted._environment(env)
    before = grafted._tree(env)
    assert main(["slim", "--env", str(env), "--for", "b200", "--compile", "--json", "--quiet"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {each["from"] for each in made["compiled"]} == {"compute_80"}
    assert codes(site / "foo" / "libfoo.so") == [["sm_100"]] * 2
    load(site / "foo" / "libfoo.so")
    rows = (site / "foo-1.0.dist-info" / "RECORD").read_text()
    assert all(f"foo-1.0.dist-info/cuwheel-{name}.json,sha256=" in rows for name in ("graft", "slim"))
    again = cuwheel.slim(env=env, machines=["b200"], compile=True)
    assert not again.written
    assert "compile-nothing" in {each.rule for each in again.findings}
    assert main(["slim", "--undo", "--env", str(env), "--quiet"]) == 0
    assert grafted._tree(env) == before


def test_a_folder_and_libraries(tmp_path: Path) -> None:
    """With --future the PTX stays: nothing is cut, and what was made is there all the same."""
    folder = tmp_path / "lib"
    folder.mkdir()
    shutil.copy(compiled_library("ptx"), folder / "liba.so")
    before = grafted._tree(folder)
    cuwheel.slim(folder, machines=["h100"], compile=True, future=True, output=tmp_path / "copy")
    assert grafted._tree(folder) == before
    assert codes(tmp_path / "copy" / "liba.so") == [["sm_90", "compute_80"]] * 2
    cuwheel.slim(folder, machines=["h100"], compile=True)
    assert codes(folder / "liba.so") == [["sm_90"]] * 2
    cuwheel.slim([folder / "liba.so"], machines=["h100"], compile=True, output=tmp_path / "alone")
    assert (tmp_path / "alone" / "liba.so").read_bytes() == (folder / "liba.so").read_bytes()
    assert [each.name for each in (tmp_path / "alone").iterdir()] == ["liba.so"]
    cuwheel.slim_undo(folder)
    assert grafted._tree(folder) == before


def test_ptx_that_ptxas_refuses_stays(tmp_path: Path) -> None:
    library = tmp_path / "broken.so"
    data = compiled_library("ptx-raw").read_bytes()
    library.write_bytes(data.replace(b"mul.wide.s32", b"mul.wise.s32").replace(b"cvt.rn", b"cvt.xx"))
    made = cuwheel.slim(library, machines=["h100"], compile=True, output=tmp_path / "out")
    assert {each.rule for each in made.findings} == {"compile-failed"}
    cuwheel.slim(library, machines=["h100"], output=tmp_path / "without")
    assert (tmp_path / "out" / "broken.so").read_bytes() == (tmp_path / "without" / "broken.so").read_bytes()
    assert made.compiled == ()
