"""Every verb, shown names that a stranger chose: no line of ours steers a terminal or commands a CI service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from tests.fixtures import foreign, manifest, small_wheel
from tests.fixtures.command import call
from tests.unit.changes.slim.packages import make_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.integration
_KERNEL = b"kernel_whose_name_has_32_bytes__"
_LIBRARY = manifest.HERE / "bin" / "names-130.so"
_OWN_ELEMENTS = ("<br>", "<pre>", "</pre>", "<code>", "</code>")

_FIRST = ("line feed", "wrapped", "GitHub")  # the others take minutes

SHAPES = pytest.mark.parametrize("name", foreign.NAMES.values(), ids=foreign.NAMES)
SHAPES_BY_VERB = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=shape, marks=() if shape in _FIRST else pytest.mark.slow)
        for shape, name in foreign.NAMES.items()
    ],
)


def _world(folder: Path, name: str) -> dict[str, str]:
    """Files of that name, with members, kernels, machines and packages of it. Their names, by what they are."""
    file = name.replace("/", "-")[:80]
    own = name.encode("utf-8", "surrogatepass").replace(b"/", b"-")[: len(_KERNEL)].ljust(len(_KERNEL), b"k")
    library = _LIBRARY.read_bytes().replace(_KERNEL, own)
    (folder / f"{file}.so").write_bytes(library)
    (folder / f"{file}.whl").write_bytes(b"no wheel")
    (folder / f"{file}.txt").write_text(f"{name}\nImportError: {name}.so: cannot open shared object file\n", "utf-8")
    (folder / file).mkdir()
    (folder / file / f"lib{file}.so").write_bytes(library)
    tag = "py3-none-linux_x86_64"
    files: dict[str, str | bytes] = {"sub/__init__.py": "", f"sub/{file}.so": library, f"sub/{file}.py": "x"}
    wheel = small_wheel.Wheel(name="sub", tag=tag, files=files, metadata_version=f"1.0{name}").write(folder)
    rows = {
        each: f'"{each}",{small_wheel.digest(body if isinstance(body, bytes) else body.encode())},{len(body)}'
        for each, body in files.items()
    }
    sound = small_wheel.Wheel(name="good", tag=tag, files=files, record=rows).write(folder)
    env = folder / "env"
    make_environment(env, {("foo", "1.0"): {f"foo/{file}.so": library, "foo/__init__.py": b""}})
    quoted = "".join(f"\\U{ord(each):08x}" for each in name)  # as TOML has it
    (folder / f"{file}.toml").write_text(f'[[machine]]\nname = "{quoted}"\ngpu = "{quoted}"\n')
    machines = (f'[[machine]]\nname = "{quoted} {gpu}"\ngpu = "{gpu}"\n' for gpu in ("h100", "v100"))
    (folder / "fleet.toml").write_text("".join(machines))
    return {"so": f"{file}.so", "whl": f"{file}.whl", "log": f"{file}.txt", "folder": file, "wheel": wheel.name,
            "good": sound.name, "toml": f"{file}.toml", "name": name, "file": file}  # fmt: skip


def _commands(is_: dict[str, str]) -> Iterator[Sequence[str]]:
    name = is_["name"]
    for target in (is_["so"], is_["whl"], is_["folder"], is_["wheel"], is_["good"], f"./missing{name}", name):
        yield ("inspect", target)
        yield ("inspect", target, "--kernels")
        yield ("check", target, "--on", "h100,v100", "--verbose")
        yield ("slim", target, "--for", "h100", "-o", f"out{len(target)}")
    yield ("inspect", is_["so"], "--against", is_["good"])
    yield ("inspect", is_["so"], f"--kernels={name}")
    yield ("check", is_["so"], "--on", "fleet.toml", "--report", "report")
    yield ("check", is_["good"], "--on", "fleet.toml", "--report", f"report {is_['file']}")
    for machine in (is_["toml"], "fleet.toml", name):
        yield ("check", is_["so"], "--on", machine)
        yield ("plan", "--for", machine)
    yield ("slim", "foo", "--env", "env", "--for", "h100", "--dry-run")
    yield ("graft", is_["good"], is_["wheel"], "-o", "grafted")
    yield ("graft", is_["so"], is_["so"], "-o", "grafted.so")
    yield ("repair", is_["wheel"], "-o", "repaired")
    yield ("repair", is_["good"], "-o", "repaired")
    yield ("verify", is_["wheel"], "--static")
    yield ("verify", is_["good"], "--static")
    yield ("verify", "--read", is_["log"])
    yield ("publish", is_["wheel"], is_["good"], is_["whl"], "--to", "site")
    yield ("publish", is_["good"], "--to", f"site{is_['file']}")
    yield ("publish", "--check", f"site{is_['file']}")
    yield ("publish", "--check", is_["folder"])
    yield ("install", name, "--env", "env", "--dry-run")
    yield ("find", name, "--index", is_["folder"], "--on", "h100")
    yield ("find", "good", "--index", f"site{is_['file']}", "--on", "h100")
    yield ("explain", is_["log"])
    yield ("lookup", "gpu", name)
    yield ("lookup", "cuda", name)
    yield ("doctor", "--env", name)
    yield ("ci", "github", "--check", is_["folder"])
    yield ("toolchain", "install", name, "--dry-run")
    yield ("build", is_["folder"], "--for", name)
    yield ("record", "--", name)
    yield ("record", "--", f"./{is_['log']}")
    yield ("record", "--", f"./{is_['folder']}")
    yield ("trace", "--", name)
    yield ("record", "replay", name)
    yield ("record", "diff", is_["folder"])
    yield (name,)
    yield ("inspect", f"--{name}")


@SHAPES_BY_VERB
def test_no_verb_writes_what_steers(name: str, tmp_path: Path) -> None:
    problems = []
    for command in _commands(_world(tmp_path, name)):
        told = call(*command, cwd=tmp_path)
        problems += [f"{command!r}: {each}" for each in foreign.wrong(told.stdout) + foreign.wrong(told.stderr)]
        assert "this is a bug" not in told.stderr, command
    assert not problems, "\n".join(problems)


@SHAPES
def test_json_has_the_names_and_commands_nothing(name: str, tmp_path: Path) -> None:
    is_ = _world(tmp_path, name)
    for command in (("inspect", is_["so"]), ("inspect", is_["good"]), ("check", is_["folder"], "--on", "fleet.toml")):
        told = call(*command, "--json", cwd=tmp_path)
        assert not foreign.wrong(told.stdout)
        assert any(is_["file"] in each for each in _texts(told.document))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


@SHAPES
def test_reports_for_services_are_what_they_are(name: str, tmp_path: Path) -> None:
    is_ = _world(tmp_path, name)
    words = ("--on", "fleet.toml", "--max-size", "1kB", "--report", "report")
    assert call("check", is_["so"], is_["good"], is_["folder"], *words, cwd=tmp_path).status in (0, 1)
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "report").iterdir()}
    ET.fromstring(written["junit.xml"])  # noqa: S314 - our own, made here
    json.loads(written["check.sarif"])
    for line in written["annotations.txt"].splitlines():
        assert line.startswith(("::error file=", "::warning file="))
        assert not foreign.wrong(line.partition(" ")[2])
    summary = written["summary.md"]
    assert not [each for each in foreign.wrong(summary) if "command" not in each]
    elements = [
        each.content
        for token in MarkdownIt("commonmark").enable("table").parse(summary)
        for each in (token, *(token.children or ()))
        if each.type in ("html_block", "html_inline", "link_open", "image")
    ]
    assert [each for each in elements if not each.startswith(_OWN_ELEMENTS)] == []
    for active in ("<script", "<img", "javascript:"):
        assert active not in summary
