from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.changes.stamp import guard
from cuwheel.changes.stamp.guard import Guard, Run
from cuwheel.device_code.contents import Survey
from cuwheel.errors import UsageError
from cuwheel_core.device_code.libraries import Cudart, Registration, Wrapper
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel.metadata import Distribution
from tests.unit.verdicts.libraries import code, library

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library


def registered(*containers: str, isa: str = "9.0", **changes: Any) -> Library:
    """Each a list of architectures."""
    rows = [
        [code(arch, compression="none", ptx_isa=isa if arch.startswith("compute") else None) for arch in each.split()]
        for each in containers
    ]
    wrappers = tuple(Wrapper(version=1, container=index) for index in range(len(rows)))
    registration = Registration(wrappers=wrappers, module_ids=(), containers=len(rows), unnamed=())
    return library(*rows, registration=registration, **changes)


def runs(*libraries: Library, imported: tuple[str, ...] = ()) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.driver) for each in wish(*libraries, imported=imported).runs]


def wish(*libraries: Library, imported: tuple[str, ...] = ()) -> Guard:
    said = Distribution(name="foo", version="1.0", tags=("py3-none-any",), requires=())
    found = Survey(
        target="foo.whl",
        kind="wheel",
        size=1,
        distribution=said,
        libraries=libraries,
        findings=(),
        imported=imported,
    )
    return guard.guard_for(found, "foo")


@pytest.mark.parametrize(
    ("archs", "served"),
    [
        ("sm_89 sm_90", [(89, 99, 0)]),
        ("sm_80", [(80, 89, 0)]),
        ("sm_90a", [(90, 90, 0)]),
        ("sm_90a sm_120", [(90, 90, 0), (120, 129, 0)]),
        ("sm_120a", [(120, 120, 0)]),
        ("compute_90a", [(90, 90, 13000)]),
        ("compute_90", [(90, 9999, 13000)]),
        ("sm_80 compute_90", [(80, 89, 0), (90, 9999, 13000)]),
        ("sm_80 sm_120 compute_120", [(80, 89, 0), (120, 129, 0), (130, 9999, 13000)]),
    ],
)
def test_runs_follow_the_rules_of_architectures(archs: str, served: list[tuple[int, int, int]]) -> None:
    assert runs(registered(archs)) == served


def test_family_code_serves_its_family_and_nothing_later() -> None:
    assert [each[:2] for each in runs(registered("sm_100f"))] == [(100, 100), (103, 103), (107, 107)]
    assert [each[:2] for each in runs(registered("sm_120f"))] == [(120, 121)]


@pytest.mark.parametrize(("isa", "driver"), [("8.4", 12040), ("8.7", 12080), ("9.0", 13000), ("9.1", 13010)])
def test_ptx_needs_the_driver_of_its_toolkit(isa: str, driver: int) -> None:
    assert runs(registered("compute_80", isa=isa)) == [(80, 9999, driver)]


def test_cuda_majors_need_their_drivers_and_minors_do_not() -> None:
    cudart = Cudart(linkage="static", major=12, evidence="")
    made = registered("sm_90", cudart=cudart, toolkits=("12.8",))
    assert runs(made) == [(90, 99, 12000)]


def test_partly_served_is_let_through() -> None:
    """A package may have kernels for one architecture alone, and know when to use them."""
    assert runs(registered("sm_80", "sm_90a")) == [(80, 90, 0)]


def test_every_library_that_import_loads_must_serve() -> None:
    both = registered("sm_80 sm_90", path="lib/a.so"), registered("sm_90", path="lib/b.so")
    assert runs(*both, imported=("lib/a.so", "lib/b.so")) == [(90, 99, 0)]
    assert runs(*both) == [(80, 99, 0)]  # a part of it runs, and the package may know what it does


def test_unknown_ptx_needs_no_driver_that_is_not_known() -> None:
    assert runs(registered("compute_80", isa="99.0")) == [(80, 9999, 0)]


def test_words_name_capabilities_and_cuda() -> None:
    assert (
        wish(registered("sm_89 sm_90", toolkits=("13.0",))).built_for
        == "GPUs of compute capability 8.9, 9.0 (CUDA 13.0)"
    )
    assert wish(registered("sm_80 compute_80")).built_for.endswith("12.1 and later")
    assert wish(registered("sm_90a")).wheel == "foo 1.0"


@pytest.mark.parametrize(
    "message", ["", 'a "quoted" one', "two\nlines", "naïve – ok", "it's \\ {x}", "\u2028 \U0001f600"]
)
def test_any_message_makes_a_sound_module(message: str) -> None:
    text = guard.guard_source(
        Guard(package="foo", message=message, wheel="x", built_for="y", runs=(Run(first=1, last=2, driver=3),))
    )
    assert text.isascii() or message == ""
    names: dict[str, Any] = {}
    exec(compile(ast.parse(text, feature_version=(3, 8)), "guard", "exec"), names)  # noqa: S102 - that is the test
    assert (names["INSTEAD"], names["RUNS"]) == (message, ((1, 2, 3),))
    assert callable(names["check"])
    assert "# >>> data" not in text


def test_a_guard_that_nobody_calls_is_told() -> None:
    told = guard.call_finding("import os\n", "foo", inject=False)
    assert told is not None
    assert told.severity == "warning"
    assert guard.call_finding(f"{guard.CALL}\ncheck()\n", "foo", inject=False) is None


CALL = b"_cuwheel_check()"


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"x = 1\n",
        b"x = 1",
        b"# only a comment",
        b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\nname = '\xe9'\n",
        b'"""Says what it is."""\nx = 1\n',
        b'"""Says\nwhat it is."""\n\nfrom __future__ import annotations\n\nx: int = 1\n',
        b'""""""\nfrom __future__ import annotations\n',
        b"from __future__ import (\n    annotations,\n    division,\n)\nfrom __future__ import generator_stop\nx = 1\n",
        b"from __future__ import annotations; x = 1\n",
        b"from __future__ import annotations ; x = 1",
        b'"""Doc."""; x = 1\n',
        b"\xef\xbb\xbfx = 1\n",
        b'\xef\xbb\xbf"""Doc."""\nx = 1\n',
        b'"""Doc."""\r\nfrom __future__ import annotations\r\nx = 1\r\n',
        b"@print\ndef f(): ...\n",
        b"import os as _o\nx = 1\n",
        b"from . import sub\n",
        b'"\\d"\nx = 1\n',
    ],
)
def test_the_call_is_put_where_python_takes_it(source: bytes) -> None:
    made = guard.with_call(source, "foo/__init__.py")
    tree = ast.parse(made)
    called = [index for index, each in enumerate(tree.body) if ast.unparse(each) == CALL.decode()]
    assert len(called) == 1
    before = [ast.unparse(each) for each in tree.body[: called[0] - 1]]
    assert all(each.startswith(("from __future__", "'", '"')) for each in before)  # nothing of the package's own
    rest = [*tree.body[: called[0] - 1], *tree.body[called[0] + 2 :]]
    assert [ast.dump(each) for each in rest] == [ast.dump(each) for each in ast.parse(source).body]
    assert guard.with_call(made, "foo/__init__.py") == made


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(MalformedError, match="cannot be read as Python"):
        guard.with_call(b"def (:", "foo/__init__.py")
    with pytest.raises(MalformedError):
        guard.with_call(b"x = 1\0", "foo/__init__.py")


@pytest.mark.parametrize(
    ("packages", "libraries", "expected"),
    [
        (["foo_bar"], [], "foo_bar"),
        (["foo_bar", "tests"], [], "foo_bar"),
        (["other", "tests"], ["other/lib.so"], "other"),
        (["other", "tests"], [], None),
        (["other", "tests"], ["other/a.so", "tests/b.so"], None),
        ([], [], None),
    ],
)
def test_which_package_is_guarded(packages: list[str], libraries: list[str], expected: str | None) -> None:
    if expected:
        assert guard.package_of(packages, "Foo.Bar", libraries) == expected
        return
    with pytest.raises(UsageError) as caught:
        guard.package_of(packages, "Foo.Bar", libraries)
    assert "package = " in caught.value.hint
