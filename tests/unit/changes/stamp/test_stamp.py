from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from packaging.version import Version

from cuwheel import api
from cuwheel.changes.stamp import guard, stamp
from cuwheel.device_code import description
from cuwheel.device_code.description import Description, File, Tools
from cuwheel.device_code.survey import survey
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.report import terminal
from cuwheel.report.answer import document_of
from cuwheel.wheel import edit
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError, MalformedError, UnsafeWheelError
from tests.unit.changes.slim.packages import FOO, make_wheel, wrong_members

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel.changes.stamp.guard import Guard

DESCRIBED = Description(
    cuda="13.0",
    archs=("sm_89", "sm_90"),
    toolchain=Tools(
        provider="index",
        release="13.0.2",
        nvcc="13.0.88",
        platform="linux-x86_64",
        host_compiler="gcc 12.2.0",
        archives=(File(file="/home/somebody/cache/nvcc.whl", sha256="ab" * 32),),
    ),
    sources="cd" * 32,
)
WISH = stamp.StampOptions(description=DESCRIBED)


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def guarded(path: Path, package: str = "foo") -> Guard:
    return guard.guard_for(survey(path, detail="containers"), package)


def check_record(path: Path) -> None:
    assert wrong_members(path) == []


@pytest.mark.parametrize(
    ("version", "cuda", "labelled"),
    [
        ("1.2", "13.0", "1.2+cu130"),
        ("1.2.dev3", "12.4", "1.2.dev3+cu124"),
        ("1.2+ubuntu.1", "13.0", "1.2+ubuntu.1.cu130"),
        ("1.2+cu128", "13.0", "1.2+cu130"),
        ("1.2+g12ab.cu124.d20260101", "13.4", "1.2+g12ab.d20260101.cu134"),
        ("1!2.0rc1", "13.0.2", "1!2.0rc1+cu130"),
    ],
)
def test_local_labels_are_merged(version: str, cuda: str, labelled: str) -> None:
    assert stamp.local_version(version, cuda) == labelled


@pytest.mark.parametrize(
    ("version", "cuda", "labelled"),
    [
        ("1.2", "", "1.2+42.1"),
        ("1.2.dev0+g12ab", "13.0", "1.2.dev0+42.1.g12ab.cu130"),
        ("1.2+cu128", "", "1.2+42.1.cu128"),
    ],
)
def test_the_label_of_a_build_comes_first(version: str, cuda: str, labelled: str) -> None:
    made = stamp.local_version(version, cuda, "42.1")
    assert made == labelled
    assert Version(version) < Version(made) < Version(stamp.local_version(version, cuda, "100.1"))


@pytest.mark.parametrize(
    ("name", "suffixed"), [("foo", "foo-cu13"), ("foo-cu12", "foo-cu13"), ("Foo_Bar", "Foo_Bar-cu13")]
)
def test_suffixes_name_the_major(name: str, suffixed: str) -> None:
    assert stamp.suffixed_name(name, "13.4") == suffixed


def test_no_version_no_label() -> None:
    with pytest.raises(UsageError, match="not a version"):
        stamp.local_version("not a version", "13.0")


def test_description_travels_and_reads_back(tmp_path: Path) -> None:
    made = stamp.stamp(make_wheel(tmp_path / "in", FOO), tmp_path / "out", WISH)
    found = survey(made).description
    assert found is not None
    assert found.cuda == "13.0"
    assert found.toolchain is not None
    assert found.toolchain.archives == (File(file="nvcc.whl", sha256="ab" * 32),), "no folder of the machine"
    check_record(made)
    assert [each.name for each in (tmp_path / "out").iterdir()] == [made.name]


def test_what_is_installed_is_described(tmp_path: Path) -> None:
    made = stamp.stamp(make_wheel(tmp_path / "in", FOO), tmp_path / "out", WISH)
    site = tmp_path / "env/lib/python3.12/site-packages"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
    found = survey("foo", env=tmp_path / "env").description
    assert found == survey(made).description
    assert found == description.of_folder(next(site.glob("*.dist-info")))


def test_others_wheels_have_none(tmp_path: Path) -> None:
    assert survey(make_wheel(tmp_path, FOO)).description is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"{", MalformedError),
        (b"[]", MalformedError),
        (b"\xff", MalformedError),
        (b'{"schema": "cuwheel.wheel/1"}', MalformedError),
        (b'{"schema": "cuwheel.wheel/2"}', NewerSchemaError),
        (b" " * ((1 << 20) + 1), MalformedError),
        (b"[" * 100_000, MalformedError),
    ],
)
def test_foreign_descriptions_are_errors(tmp_path: Path, text: bytes, error: type[CuwheelError]) -> None:
    with WheelFile(make_wheel(tmp_path, FOO, extra={description.NAME: text})) as wheel, pytest.raises(error):
        description.of_wheel(wheel)
    info = tmp_path / "x.dist-info"
    info.mkdir()
    (info / description.NAME).write_bytes(text)
    with pytest.raises(error):
        description.of_folder(info)


def test_same_wheel_same_bytes(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "in", FOO)
    wish = replace(WISH, version="1.0+cu130.x", guard=guarded(wheel))
    first, second = (stamp.stamp(wheel, tmp_path / name, wish).read_bytes() for name in "ab")
    assert first == second
    again = stamp.stamp(tmp_path / "a" / "foo-1.0+cu130.x-py3-none-any.whl", tmp_path / "c", wish)
    assert contents(again) == contents(next((tmp_path / "a").iterdir())), "a stamp replaces a stamp"
    check_record(again)


def test_unchanged_members_keep_their_bytes(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "in", FOO)
    files = contents(stamp.stamp(wheel, tmp_path / "out", WISH))
    assert {name: files[name] for name in FOO} == FOO
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(next((tmp_path / "out").iterdir())) as after:
        for name in FOO:
            old, new = before.getinfo(name), after.getinfo(name)
            assert (new.compress_size, new.external_attr, new.date_time) == (
                old.compress_size,
                old.external_attr,
                old.date_time,
            )


METADATA = b"""Metadata-Version: 2.4
Name: Foo.Bar
Version: 1.0
Requires-Dist: numpy
Requires-Dist: foo-bar[cli]; extra == "all"
Requires-Dist: foo-bar-baz
Provides-Extra: all

Name: of the text
"""


def test_suffix_renames_all_but_the_imports(tmp_path: Path) -> None:
    data = {"foo_bar-1.0.data/scripts/tool": b"#!python\n", "foo_bar-1.0.data/platlib/low/__init__.py": b""}
    path = make_wheel(
        tmp_path / "in", {**FOO, **data}, "foo_bar", "1.0", extra={"licenses/LICENSE": b"free", "top_level.txt": b"foo"}
    )
    wish = replace(WISH, name="foo-bar-cu13")
    made = stamp.stamp(path, tmp_path / "out", wish)
    assert made.name == "foo_bar_cu13-1.0-py3-none-any.whl"
    files = contents(made)
    assert set(FOO) < set(files), "import names stay"
    assert "foo_bar_cu13-1.0.data/scripts/tool" in files
    assert files["foo_bar_cu13-1.0.dist-info/licenses/LICENSE"] == b"free"
    assert {each.partition("/")[0] for each in files} == {
        "foo",
        "foo_bar_cu13-1.0.data",
        "foo_bar_cu13-1.0.dist-info",
    }
    assert b"\nName: foo-bar-cu13\n" in files["foo_bar_cu13-1.0.dist-info/METADATA"]
    check_record(made)


def test_metadata_is_changed_where_asked_and_nowhere_else() -> None:
    text = edit.changed_metadata(
        METADATA, name=("Foo.Bar", "foo-bar-cu13"), version="1.0+x", requires=("numpy", "torch >=2")
    )
    assert text == (
        METADATA.replace(b"Name: Foo.Bar", b"Name: foo-bar-cu13", 1)
        .replace(b"Version: 1.0", b"Version: 1.0+x")
        .replace(b"foo-bar[cli]", b"foo-bar-cu13[cli]")
        .replace(b"foo-bar-baz\n", b"foo-bar-baz\nRequires-Dist: torch >=2\n")
    )
    assert edit.changed_metadata(METADATA) == METADATA


def test_metadata_with_other_line_ends() -> None:
    text = METADATA.replace(b"\n", b"\r\n")
    assert edit.changed_metadata(text, requires=("a",)) == text.replace(
        b"foo-bar-baz\r\n", b"foo-bar-baz\r\nRequires-Dist: a\r\n"
    )
    assert edit.changed_metadata(b"Name: a\nVersion: 1", requires=("b",)) == b"Name: a\nVersion: 1\nRequires-Dist: b\n"


def test_wrong_requirements_are_the_callers() -> None:
    with pytest.raises(UsageError, match="not a requirement"):
        edit.changed_metadata(METADATA, requires=("not a requirement!",))


def test_both_names_at_once(tmp_path: Path) -> None:
    wish = replace(WISH, name="foo-cu13", version="1.0+cu130", extra_requires=("nvidia-cublas>=13",))
    made = stamp.stamp(make_wheel(tmp_path / "in", FOO, version="1.0"), tmp_path / "out", wish)
    assert made.name == "foo_cu13-1.0+cu130-py3-none-any.whl"
    assert b"Requires-Dist: nvidia-cublas>=13\n" in contents(made)["foo_cu13-1.0+cu130.dist-info/METADATA"]
    check_record(made)


@pytest.mark.parametrize(
    ("extra", "problem"),
    [({"RECORD.jws": b"signed"}, "signed"), ({"RECORD.p7s": b"signed"}, "signed")],
)
def test_signed_wheels_are_refused(tmp_path: Path, extra: Mapping[str, bytes], problem: str) -> None:
    with pytest.raises(MalformedError, match=problem):
        stamp.stamp(make_wheel(tmp_path / "in", FOO, extra=extra), tmp_path / "out", WISH)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../out.py", "/etc/x", "foo/__init__.py"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_members_are_refused(tmp_path: Path, name: str) -> None:
    path = make_wheel(tmp_path, FOO)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(UnsafeWheelError):
        stamp.stamp(path, tmp_path / "out", WISH)


def test_two_distributions_in_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match="2 dist-info folders"):
        stamp.stamp(make_wheel(tmp_path, {**FOO, "bar-1.dist-info/METADATA": b""}), tmp_path / "out", WISH)


def test_incomplete_records_are_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FOO)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("foo/late.py", b"")
    with pytest.raises(MalformedError, match=r"do not match: foo/late\.py"):
        stamp.stamp(wheel, tmp_path / "out", WISH)


def test_the_guards_call_is_put_into_a_package_that_does_not_know_of_it(tmp_path: Path) -> None:
    files = {**FOO, "foo/__init__.py": b"from __future__ import annotations\nx = 1\n"}
    wheel = make_wheel(tmp_path, files, version="1.0")
    made = stamp.stamp(wheel, tmp_path / "out", replace(WISH, guard=replace(guarded(wheel), inject=True)))
    first, second, third = contents(made)["foo/__init__.py"].decode().splitlines()
    assert (first, third) == ("from __future__ import annotations", "x = 1")
    assert second.startswith("from ._cuwheel_guard import check as _cuwheel_check; _cuwheel_check()")
    check_record(made)


def test_guard_lands_beside_its_package(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "in", {**FOO, "foo-1.0+cu130.data/platlib/bar/__init__.py": b""})
    made = stamp.stamp(wheel, tmp_path / "out", replace(WISH, guard=guarded(wheel)))
    assert f"foo/{guard.FILE}" in contents(made)
    made = stamp.stamp(wheel, tmp_path / "out", replace(WISH, guard=guarded(wheel, "bar"), version="2"))
    assert f"foo-2.data/platlib/bar/{guard.FILE}" in contents(made)
    check_record(made)
    with pytest.raises(UsageError, match="no such package") as caught:
        stamp.stamp(wheel, tmp_path / "out", replace(WISH, guard=guarded(wheel, "baz")))
    assert caught.value.hint == "its packages: bar, foo"


def test_inspect_shows_the_description(tmp_path: Path) -> None:
    made = stamp.stamp(make_wheel(tmp_path / "in", FOO), tmp_path / "out", WISH)
    answer = api.inspect(made)
    assert answer.description == survey(made).description
    stream = io.StringIO()
    terminal.write(document_of(answer, verbose=False), stream)
    assert "built by cuwheel" in stream.getvalue()
    assert "nvcc 13.0.88 (index), gcc 12.2.0" in stream.getvalue()


def test_inspect_survives_a_foreign_description(tmp_path: Path) -> None:
    answer = api.inspect(make_wheel(tmp_path, FOO, extra={description.NAME: b"{}"}))
    assert answer.description is None
    assert [each.rule for each in answer.findings] == ["description-unreadable"]


def test_slimming_keeps_description_and_guard_true(tmp_path: Path) -> None:
    opens = "\nimport ctypes\nctypes.CDLL('libfoo.so')\nctypes.CDLL('libbar.so.1')\n"
    wheel = make_wheel(tmp_path / "in", {**FOO, "foo/__init__.py": (guard.CALL + opens).encode()}, version="1.0")
    told = replace(
        DESCRIBED, archs=("sm_75", "sm_90"), coverage=stamp.coverage_of_wheel(survey(wheel, detail="containers"))
    )
    assert told.coverage.native == ("7.5", "9.0")
    asked = replace(guarded(wheel), message='install "another"')
    made = stamp.stamp(wheel, tmp_path / "made", replace(WISH, description=told, guard=asked))
    assert api.slim(made, machines=["h100"], output=tmp_path / "slim").written
    (slimmed,) = (tmp_path / "slim").iterdir()
    found = survey(slimmed).description
    assert found is not None
    assert (found.archs, found.coverage.native) == (("sm_90",), ("9.0",))
    text = contents(slimmed)[f"foo/{guard.FILE}"].decode()
    assert "(90, 90, 13000)" in text, "what is left of one library is sm_90a"
    assert "(75, 79" not in text
    assert 'INSTEAD = "install \\"another\\""' in text
    assert "foo 1.0+slim" in text
    check_record(slimmed)


def test_reach_is_that_of_all_libraries_together(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"foo/libfoo.so": FOO["foo/libfoo.so"]})
    found = stamp.coverage_of_wheel(survey(wheel, detail="containers"))
    assert "9.0" in found.native
    assert not set(found.native) & set(found.jit)


def test_description_has_no_time_and_no_path() -> None:
    text = description.encoded(DESCRIBED).decode()
    assert "/home" not in text
    assert set(json.loads(text)) == set(Description.__struct_fields__)
