from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest

from cuwheel.building import config
from cuwheel.errors import ConfigurationError, UsageError
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """\
for = "h100, l40"
cuda = ["13.0"]
python = "3.10,3.12"
force-archs = true
pass-through = ["MY_*"]
config-settings = { "cmake.define.X" = "{archs.cmake}" }
before = "cmake -DARCHS={archs.bitsandbytes} -B build . && echo {{}}"
environment = { A_B = "{cuda_digits}", a-b_c = "1" }
[plan]
future = true
[gate]
allow = "sm_75"
size = "8 MB"
[[verify.check]]
import = "package"
"""


def written(folder: Path, text: str, name: str = config.FILE) -> Path:
    (folder / name).write_text(text)
    return folder


def problems(folder: Path, text: str, name: str = config.FILE) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        config.find_configuration(written(folder, text, name), None, {})
    return caught.value.problems


def test_keys_are_written_with_hyphens_and_a_text_is_a_list_of_one(tmp_path: Path) -> None:
    table = config.find_configuration(written(tmp_path, WHOLE.replace(', a-b_c = "1"', "")), None, {}).table
    assert table.for_ == ("h100", "l40")
    assert table.python == ("3.10", "3.12")
    assert table.force_archs
    assert table.pass_through == ("MY_*",)
    assert table.config_settings == {"cmake.define.X": "{archs.cmake}"}
    assert table.before == ("cmake -DARCHS={archs.bitsandbytes} -B build . && echo {{}}",)
    assert table.plan.future
    assert table.gate.allow == ("sm_75",)
    assert table.verify.check[0].import_ == "package"


def test_keys_of_free_tables_stay_as_they_are(tmp_path: Path) -> None:
    assert problems(tmp_path, WHOLE) == ("environment: 'a-b_c' is not a variable name",)


def test_every_problem_at_once_with_keys_as_written(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        """\
[project]
name = "x"
[tool.cuwheel]
cuda = [13.0]
force_archs = true
force-archs = true
pythn = ["3.12"]
python = ["3"]
naming = "everywhere"
before = ["cmake {archs.cmak}", "echo {"]
requires = ["torch=2"]
timeout = -1
[tool.cuwheel.gate]
size = "many"
[[tool.cuwheel.verify.check]]
import = "x"
python = "y"
memory = "lots"
""",
        config.PYPROJECT,
    )
    starts = [
        "tool.cuwheel: 'force-archs' appears twice",
        "tool.cuwheel: unknown key 'pythn'; did you mean 'python'?",
        "tool.cuwheel.cuda[0]: expected `str`, got `float`",
        "tool.cuwheel.naming: 'everywhere' is not one of none, local, suffix",
        "tool.cuwheel.python: '3' is not a version",
        "tool.cuwheel.before[0]: 'cmake {archs.cmak}': unknown placeholder {archs.cmak}",
        "tool.cuwheel.before[1]: 'echo {'",
        "tool.cuwheel.requires: 'torch=2' is not a requirement",
        "tool.cuwheel.timeout: -1 is not a positive number",
        "tool.cuwheel.gate.size: 'many' is not a size",
        "tool.cuwheel.verify.check[0]: it must have exactly one of command, python and import, but has ",
        "tool.cuwheel.verify.check[0]: memory: 'lots' is not a size",
    ]
    assert [start for start in starts if not any(each.startswith(start) for each in told)] == []
    assert len(told) == len(starts)


def test_one_wrong_key_of_a_table_hides_none_of_the_others(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        """\
cuda = ["13.0"]
python = [3.12, "2.7"]
un-known = 1
components = ["cublas", "cubals"]
[environment]
"A B" = "x"
NUMBER = 3
WRONG = "{nothing}"
[gate]
alow = ["sm_75"]
allow = ["sm75", "sm_75", "compute_*", "lib*.so:*", "debug"]
size = "big"
glibc = "new"
""",
    )
    starts = [
        "unknown key 'un-known'",
        "python[0]: expected `str`, got `float`",
        "python: '2.7' is not a version",
        "components: no component named 'cubals'",
        "environment: 'A B' is not a variable name",
        "environment.NUMBER: expected `str`, got `int`",
        "environment.WRONG: '{nothing}': unknown placeholder {nothing}",
        "gate: unknown key 'alow'; did you mean 'allow'?",
        "gate.allow: 'sm75' is not an architecture",
        "gate.size: 'big' is not a size",
        "gate.glibc: 'new' is not a version",
    ]
    assert [start for start in starts if not any(each.startswith(start) for each in told)] == []
    assert len(told) == len(starts)


def test_versions_that_are_numbers_get_a_hint_because_13_10_would_become_13_1(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.find_configuration(written(tmp_path, "cuda = [13.10]"), None, {})
    assert 'cuda = ["13.0"]' in caught.value.hint


def test_the_command_line_overrides_lists_and_joins_tables(tmp_path: Path) -> None:
    folder = written(tmp_path, 'cuda = "13.0"\nenvironment = {A = "1"}\n[plan]\nfuture = true\n')
    overrides = {"cuda": ("13.4",), "environment": {"B": "2"}, "plan": {"native": True}, "for_": ("h100",)}
    table = config.find_configuration(folder, None, overrides).table
    assert (table.cuda, table.for_, table.environment) == (("13.4",), ("h100",), {"A": "1", "B": "2"})
    assert table.plan.future
    assert table.plan.native


def test_a_mistake_on_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        config.find_configuration(written(tmp_path, 'cuda = "13.0"'), None, {"python": ("three",)})
    assert not isinstance(caught.value, ConfigurationError)
    assert "'three'" in caught.value.message


def test_a_file_that_is_given_is_used_instead_of_the_sources_own(tmp_path: Path) -> None:
    source, other = tmp_path / "source", tmp_path / "theirs.toml"
    source.mkdir()
    written(source, 'cuda = "13.0"')
    other.write_text('for = "l40"')
    table = config.find_configuration(source, other, {}).table
    assert (table.for_, table.cuda) == (("l40",), ())


def test_cuwheel_toml_comes_before_pyproject(tmp_path: Path) -> None:
    written(tmp_path, '[tool.cuwheel]\ncuda = "13.0"', config.PYPROJECT)
    assert config.find_configuration(tmp_path, None, {}).table.cuda == ("13.0",)
    written(tmp_path, 'cuda = "13.4"')
    assert config.find_configuration(tmp_path, None, {}).table.cuda == ("13.4",)


def test_no_configuration_is_a_configuration(tmp_path: Path) -> None:
    assert config.find_configuration(tmp_path, None, {}).path is None


@pytest.mark.parametrize("text", ["for = ", "[tool]\ncuwheel = 3", "\xff", "a" + ".a" * 3000 + " = 1"])
def test_what_is_no_configuration_is_said_so(tmp_path: Path, text: str) -> None:
    (tmp_path / config.PYPROJECT).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError):
        config.find_configuration(tmp_path, None, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        config.find_configuration(None, tmp_path / "none.toml", {})


def test_the_schema_takes_what_is_taken_and_nothing_else() -> None:
    schema = config.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(msgspec.toml.decode(WHOLE), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"for_": ["h100"]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"gate": {"sise": "1 MB"}}, schema)


def test_a_project_below_brings_its_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    written(tmp_path / "package", '[tool.cuwheel]\ncuda = ["13.4"]', config.PYPROJECT)
    said = {"subdirectory": "package"}
    assert config.find_configuration(tmp_path, None, said).table.cuda == ("13.4",)
    written(tmp_path, 'cuda = ["13.0"]')
    assert config.find_configuration(tmp_path, None, said).table.cuda == ("13.4",)
    assert config.find_configuration(tmp_path, None, {}).table.cuda == ("13.0",)
    (tmp_path / "package" / config.PYPROJECT).write_text("")
    assert config.find_configuration(tmp_path, None, said).table.cuda == ("13.0",)


def test_guard_in_short(tmp_path: Path) -> None:
    (tmp_path / "cuwheel.toml").write_text('guard = "inject"\n')
    found = config.find_configuration(tmp_path, None, {}).table
    assert found.guard.inject
    assert found.guard.package is None
    assert config.find_configuration(None, None, {"guard": "inject"}).table.guard == found.guard
    (tmp_path / "cuwheel.toml").write_text('guard = "whatever"\n')
    with pytest.raises(ConfigurationError, match="guard"):
        config.find_configuration(tmp_path, None, {})


@pytest.mark.parametrize("name", ["cuwheel.toml", "pyproject.toml"])
def test_what_is_no_toml_says_how_it_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[tool.cuwheel\n")
    with pytest.raises(ConfigurationError, match="not valid TOML") as caught:
        config.find_configuration(tmp_path, None, {})
    assert "cuda = [" in caught.value.hint
