"""Each leaf of each document that verbs read from others, replaced by what no leaf should be: no verb ends with 70.

    python -m tests.campaign.leaves NAME SECONDS [SEED]

A process of its own because it forks: a command costs some milliseconds instead of an interpreter and all imports. It
tries the leaves and values of a document in an order that SEED decides, and prints a JSON object after each.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cuwheel.cli import main as cuwheel
from cuwheel_core.support import buffer
from tests.fixtures import manifest, small_wheel
from tests.fuzz import documents
from tests.fuzz.mutators import DIGITS, NUMBERS, Bare, dumped
from tests.integration import hostile_run
from tests.unit.building.recording import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS = 5  # of the processor, for any command: those here are small
HARMLESS = range(
    69
)  # a status of its own for each class of error; 70 is a bug, 99 and below 0 a process that was ended
_LONG = 300_000


NASTY: tuple[Any, ...] = (
    *NUMBERS,
    *(
        DIGITS,
        f"1.{DIGITS}",
        f">={DIGITS}",
        "",
        " ",
        "abcdefghijklmnopqrst",
        "/etc/passwd",
        "²",
        "a\0b",
        "../../x",
        "-1",
    ),
    *("x" * _LONG, "\n" * _LONG, "a." * (_LONG // 2), "(" * _LONG, "\t" * _LONG, "9." * 3000),
    *(-1, 0, 1.5, True, False, None, [], {}, [None] * 50, {"": ""}, {"a": {"b": [1]}}, [[["x"]]]),
)


class Ground:
    """The folder in which the documents lie where the verbs look for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = folder / "world"
        self.world.mkdir()
        self.seeds = documents.seeds(documents.World(self.world))
        library = (manifest.HERE / "bin" / "plain-130.so").read_bytes()
        self.parts = small_wheel.Wheel(
            name="pkg",
            tag="py3-none-manylinux_2_28_x86_64",
            files={"pkg/__init__.py": "x = 1\n", "pkg/libpkg.so": library},
            requires=["numpy>=1; python_version < '3'"],
        )
        self.wheel = self.parts.write(folder)
        self.made = folder / "made"
        self.index = folder / "index"
        self.run("publish", self.wheel, "--to", self.index, "--quiet")
        self.page = self.index / "simple" / "pkg" / "index.json"

    def run(self, *words: object) -> None:
        if cuwheel([str(each) for each in words]) not in (0, 1):
            raise AssertionError(f"the ground could not be made: {words}")

    def file(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def wheel_with(self, member: str, data: bytes) -> str:
        """The wheel with another member of its dist-info folder, and a RECORD that says so."""
        with zipfile.ZipFile(self.wheel) as old:
            held = {each: old.read(each) for each in old.namelist()}
        name = f"pkg-1.0.dist-info/{member}"
        held[name] = data
        listed = "pkg-1.0.dist-info/RECORD"
        if member != "RECORD":
            rows = (f"{each},{small_wheel.digest(body)},{len(body)}" for each, body in held.items() if each != listed)
            held[listed] = "".join(f"{row}\n" for row in (*rows, f"{listed},,")).encode()
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as new:
            for each, body in held.items():
                new.writestr(each, body)
        return self.file(f"hostile/{self.wheel.name}", stream.getvalue())

    def verbs_of(self, wheel: str) -> list[list[str]]:
        """All that read a wheel."""
        out = str(self.made)
        return [
            ["inspect", wheel],
            ["check", wheel, "--on", "h100"],
            ["slim", wheel, "--for", "h100", "-o", out],
            ["graft", "--split", wheel, "-o", out],
            ["repair", wheel, "-o", out],
            ["verify", wheel, "--static"],
            ["publish", wheel, "--to", out],
            ["find", "pkg", "--on", "h100", "--no-index", "--find-links", str(Path(wheel).parent)],
            ["plan", "--for", "h100", "--like", wheel],
        ]

    def verbs_of_index(self, index: Path) -> list[list[str]]:
        out = str(self.made)
        return [
            ["publish", "--check", str(index)],
            ["find", "pkg", "--on", "h100", "--no-index", "--index", str(index / "simple")],
            ["catalogue", "add", "pkg", "--to", out, "--index", str(index / "simple")],
            ["publish", str(self.wheel), "--to", str(index)],
            ["publish", "--to", str(index), "--keep", "1"],
        ]

    def verbs_of_machine(self, path: str) -> list[list[str]]:
        return [
            ["check", str(self.wheel), "--on", path],
            ["plan", "--for", path],
            ["doctor", "--on", path],
            ["slim", str(self.wheel), "--for", path, "--dry-run"],
            ["find", "pkg", "--on", path, "--no-index", "--index", str(self.index / "simple")],
            ["explain", self.file("log", documents.LOG.encode()), "--on", path],
        ]


class Document(NamedTuple):
    """`value`: what is in it, by its keys; `put`: writes it as bytes where verbs look, and names those that do."""

    name: str
    value: Callable[[Ground], Any]
    put: Callable[[Ground, bytes], list[list[str]]]
    written: Callable[[Any], bytes]


def as_lines(value: Any) -> bytes:
    return b"".join(dumped(each) + b"\n" for each in value)


def as_toml(value: Any) -> bytes:
    """Each key of the whole on a line; tables inside are written where they stand."""

    def inline(one: Any) -> str:
        if isinstance(one, Bare):
            return one.text
        if isinstance(one, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in one.items()) + "}"
        if isinstance(one, list):
            return "[" + ", ".join(inline(each) for each in one if each is not None) + "]"
        return json.dumps("none" if one is None else one)

    return "".join(f"{json.dumps(key)} = {inline(each)}\n" for key, each in value.items()).encode()


def as_header(value: Any) -> bytes:
    """METADATA and WHEEL: rows of a name and what it is."""
    rows = [[_plain(each) for each in row] if isinstance(row, list) else [_plain(row)] for row in value]
    return "".join(": ".join(row) + "\n" for row in rows).encode("utf-8", "surrogatepass")


def as_table(value: Any) -> bytes:
    """RECORD, and requirements of one cell each."""
    rows = [[_plain(each) for each in row] if isinstance(row, list) else [_plain(row)] for row in value]
    return "".join(",".join(row) + "\n" for row in rows).encode("utf-8", "surrogatepass")


def _plain(one: Any) -> str:
    return one.text if isinstance(one, Bare) else one if isinstance(one, str) else json.dumps(one)


def _header_of(data: bytes) -> list[list[str]]:
    return [line.split(": ", 1) for line in data.decode().splitlines() if ": " in line]


def _member(ground: Ground, name: str) -> bytes:
    with zipfile.ZipFile(ground.wheel) as opened:
        return opened.read(f"pkg-1.0.dist-info/{name}")


_METADATA = (
    ("Requires-Python", ">=3.8"),
    ("Requires-Dist", "x[a] (>=1,<2); extra == 'b'"),
    ("Provides-Extra", "b"),
    ("License-File", "LICENSE"),
    ("License-Expression", "MIT"),
    ("Dynamic", "Version"),
    ("Description-Content-Type", "text/markdown"),
    ("Project-URL", "home, https://127.0.0.1/"),
    ("Classifier", "Private :: x"),
)
_NOTE = {
    "schema": "cuwheel.slim-note/1",
    "tool": "x",
    "targets": ["h100"],
    "cuda": None,
    "version": "1.0",
    "files": [
        {
            "path": "pkg/libpkg.so",
            "fate": "slimmed",
            "bytes_before": 5,
            "bytes_after": 4,
            "dropped": [{"kind": "cubin", "arch": "sm_75", "section": ".nv_fatbin", "count": 1, "bytes": 1}],
        }
    ],
    "workload": ["python x.py"],
    "earlier": [{"tool": "x", "workload": ["y"]}],
    "slim": None,
}


def _seed(name: str, number: int = 0) -> Callable[[Ground], Any]:
    return lambda ground: json.loads(ground.seeds[name][number])


def _toml_seed(name: str) -> Callable[[Ground], Any]:
    return lambda ground: msgspec.toml.decode(ground.seeds[name][0])


def _page_of(ground: Ground, data: bytes) -> list[list[str]]:
    index = ground.folder / "hostile-index"
    shutil.rmtree(index, ignore_errors=True)
    shutil.copytree(ground.index, index)
    (index / "simple" / "pkg" / "index.json").write_bytes(data)
    return ground.verbs_of_index(index)


def _facts_of(ground: Ground, data: bytes) -> list[list[str]]:
    index = ground.folder / "hostile-index"
    shutil.rmtree(index, ignore_errors=True)
    shutil.copytree(ground.index, index)
    (index / "files" / f"{ground.wheel.name}.cuwheel.json").write_bytes(data)
    return ground.verbs_of_index(index)


def _page_in_html(ground: Ground, data: bytes) -> list[list[str]]:
    """A row of cells: the name in the address, the version of Python, the size, why it was withdrawn."""
    name, python, size, yanked = data.decode("utf-8", "replace").split("\1")
    place = ground.folder / "plain" / "simple" / "pkg"
    place.mkdir(parents=True, exist_ok=True)
    text = (
        f'<!DOCTYPE html><html><body><a href="{name}" data-requires-python="{python}" data-yanked="{yanked}" '
        f'data-size="{size}">{name}</a> {size}</body></html>'
    )
    (place / "index.html").write_text(text)
    return ground.verbs_of_index(ground.folder / "plain")[:3]


def _catalogue(ground: Ground, data: bytes) -> list[list[str]]:
    place = ground.folder / "catalogue"
    (place / "packs").mkdir(parents=True, exist_ok=True)
    (place / "catalogue.json").write_bytes(data)
    (place / "packs" / "pkg.zst").write_bytes(buffer.zstd_compressed(ground.seeds["facts"][0]))
    return [
        ["catalogue", "list", str(place)],
        ["find", "pkg", "--on", "h100", "--no-index", "--catalogue", str(place), "--find-links", str(ground.folder)],
        ["publish", str(ground.wheel), "--to", str(ground.made), "--catalogue", str(place)],
        ["catalogue", "add", "pkg", "--to", str(place), "--index", str(ground.index / "simple")],
    ]


def _record(ground: Ground, name: str, data: bytes) -> list[list[str]]:
    place = ground.folder / "record"
    shutil.rmtree(place, ignore_errors=True)
    words = ["-c", "a.cu", "-o", "a.o", "-arch=sm_90", "@x.rsp"]
    more: dict[str, Any] = {
        "pid": 7,
        "parent": "make",
        "ran": words,
        "searched": True,
        "response_files": [{"path": "x.rsp", "text": "-O2"}],
    }
    records.record(place, records.call(words, status=1, err=documents.LOG, **more))
    (place / name).write_bytes(data)
    target = str(place)
    return [
        ["explain", target],
        ["explain", target, "--json"],
        ["record", "replay", f"{target}:1", "--print"],
        ["record", "replay", target, "--list"],
        ["record", "replay", f"{target}:1"],
        ["record", "diff", f"{target}:1", "--max-runs", "0"],
    ]


def _recorded(name: str) -> Callable[[Ground], Any]:
    def read(ground: Ground) -> Any:
        _record(ground, "spare", b"")
        lines = (ground.folder / "record" / name).read_bytes().splitlines()
        found = [json.loads(line) for line in lines]
        return found if name.endswith("l") else found[0]

    return read


def _journal(ground: Ground, data: bytes) -> list[list[str]]:
    root = ground.folder / "root"
    place = root / ".cuwheel" / "slim" / "0001"
    place.mkdir(parents=True, exist_ok=True)
    (place / "journal.jsonl").write_bytes(data)
    return [["slim", str(root), *words] for words in (["--undo"], ["--commit"], ["--for", "h100"])]


def _project(ground: Ground, data: bytes) -> list[list[str]]:
    place = Path(ground.file("project/pyproject.toml", data)).parent
    return [
        ["build", str(place), "--dry-run", "--for", "h100"],
        ["ci", "github", str(place), "--check"],
        ["verify", str(ground.wheel), "--static", "--config", str(place / "pyproject.toml")],
    ]


def _trace_folder(ground: Ground, data: bytes) -> list[list[str]]:
    place = Path(ground.file("trace/trace-7-1.jsonl", data)).parent
    return [["trace", "--read", str(place)]]


def _of_file(name: str, *commands: str) -> Callable[[Ground, bytes], list[list[str]]]:
    """Commands with FILE, WHEEL, INDEX, OUT in them."""

    def put(ground: Ground, data: bytes) -> list[list[str]]:
        places = {"FILE": ground.file(name, data), "WHEEL": str(ground.wheel), "OUT": str(ground.made)}
        places["INDEX"] = str(ground.index / "simple")
        return [[places.get(word, word) for word in each.split()] for each in commands]

    return put


def _of_machine(name: str) -> Callable[[Ground, bytes], list[list[str]]]:
    return lambda ground, data: ground.verbs_of_machine(ground.file(name, data))


def _in_wheel(member: str) -> Callable[[Ground, bytes], list[list[str]]]:
    return lambda ground, data: ground.verbs_of(ground.wheel_with(member, data))


_LOCKED = "install --locked FILE --dry-run --no-index --index INDEX"

DOCUMENTS = {
    each.name: each
    for each in (
        Document("profile", _seed("profile"), _of_machine("machine.json"), dumped),
        Document("fleet", _toml_seed("fleet"), _of_machine("fleet.toml"), as_toml),
        Document("calls", _recorded("calls.jsonl"), lambda g, d: _record(g, "calls.jsonl", d), as_lines),
        Document("head", _recorded("record.json"), lambda g, d: _record(g, "record.json", d), dumped),
        Document("environment", _recorded("environment.json"), lambda g, d: _record(g, "environment.json", d), dumped),
        Document("note", lambda _: _NOTE, _in_wheel("cuwheel-slim.json"), dumped),
        Document("description", _seed("description"), _in_wheel("cuwheel.json"), dumped),
        Document("variants", _seed("variants"), _in_wheel("variant.json"), dumped),
        Document(
            "metadata",
            lambda g: [*_header_of(_member(g, "METADATA")), *map(list, _METADATA)],
            _in_wheel("METADATA"),
            as_header,
        ),
        Document("wheel", lambda g: [*_header_of(_member(g, "WHEEL")), ["Build", "1"]], _in_wheel("WHEEL"), as_header),
        Document(
            "record",
            lambda g: [line.split(",") for line in _member(g, "RECORD").decode().splitlines()],
            _in_wheel("RECORD"),
            as_table,
        ),
        Document("page", lambda g: json.loads(g.page.read_bytes()), _page_of, dumped),
        Document(
            "html",
            lambda g: [g.wheel.name, ">=3.8", "5", ""],
            _page_in_html,
            lambda value: "\1".join(map(_plain, value)).encode("utf-8", "replace"),
        ),
        Document(
            "facts",
            lambda g: json.loads((g.index / "files" / f"{g.wheel.name}.cuwheel.json").read_bytes()),
            _facts_of,
            dumped,
        ),
        Document("catalogue", _seed("catalogue"), _catalogue, dumped),
        Document(
            "requirements",
            lambda _: [["numpy>=1.5,<9999"], ["pkg==1.0 ; python_version > '3.8'"], ["torch[a]"]],
            _of_file(
                "requirements.txt",
                "install -r FILE --dry-run --no-index --index INDEX --on h100",
                "publish -r FILE --for h100 --dry-run --to OUT --index INDEX",
            ),
            as_table,
        ),
        Document("pylock", _toml_seed("pylock"), _of_file("pylock.a.toml", _LOCKED), as_toml),
        Document(
            "toolkits",
            _toml_seed("lock"),
            _of_file("cuwheel.lock", "toolchain install 13.0 --dry-run --locked FILE"),
            as_toml,
        ),
        Document(
            "proof",
            _seed("proof"),
            _of_file("proof.json", "verify --read FILE", "verify WHEEL --read FILE"),
            dumped,
        ),
        Document(
            "trace",
            _seed("trace"),
            _of_file("trace.json", "slim WHEEL --used FILE --dry-run", "plan --for FILE", "explain FILE"),
            dumped,
        ),
        Document(
            "events",
            lambda g: [json.loads(line) for line in g.seeds["trace-events"][0].splitlines()],
            _trace_folder,
            as_lines,
        ),
        Document(
            "journal",
            lambda g: [json.loads(line) for line in g.seeds["journal"][0].splitlines()],
            _journal,
            as_lines,
        ),
        Document("project", _toml_seed("config"), _project, as_toml),
        Document(
            "matrix",
            _toml_seed("matrix"),
            _of_file("matrix.toml", "lab matrix FILE -o OUT --dry-run"),
            as_toml,
        ),
        Document("trials", _toml_seed("trials"), _of_file("TRIALS.toml", "lab trials run FILE --dry-run"), as_toml),
    )
}  # fmt: skip


NAMES = tuple(DOCUMENTS)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside, tables and lists too."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


def changed(value: Any, path: Sequence[Any], leaf: Any) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = leaf
    return made


def cases(document: Document, ground: Ground, seed: int) -> list[tuple[tuple[Any, ...], Any]]:
    found = [(path, leaf) for path in places(document.value(ground)) for leaf in NASTY]
    random.Random(seed).shuffle(found)  # noqa: S311 - so that it can be repeated
    return found


def problems(document: Document, ground: Ground, path: tuple[Any, ...], leaf: Any) -> Iterator[str]:
    data = document.written(changed(document.value(ground), path, leaf))
    for words in document.put(ground, data):
        shutil.rmtree(ground.made, ignore_errors=True)
        environ = {"CUWHEEL_CACHE": str(ground.folder / "cache"), "TMPDIR": str(ground.folder)}
        ended = hostile_run.run(words, environ)
        if ended["status"] not in HARMLESS or ended["seconds"] > SECONDS or "Traceback" in ended["message"]:
            where = ".".join(map(str, path))
            what = f"status {ended['status']}, {ended['seconds']} s: {ended['message'][-1500:]}"
            yield f"{document.name} {where} = {str(leaf)[:40]!r}: {' '.join(words)}: {what}"


def main() -> None:
    began = time.monotonic()
    name, seconds, *more = sys.argv[1:]
    document = DOCUMENTS[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        quiet = sys.stdout
        sys.stdout = io.StringIO()
        ground = Ground(Path(folder))
        hostile_run.warm(
            words for words in document.put(ground, document.written(document.value(ground))) if "replay" not in words
        )
        sys.stdout = quiet
        found: list[str] = []
        waiting = cases(document, ground, int(more[0]) if more else 0)
        for number, (path, leaf) in enumerate(waiting, 1):
            found += problems(document, ground, path, leaf)
            answer = {"tried": number, "through": number == len(waiting), "problems": found}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            if time.monotonic() > began + float(seconds):
                break


if __name__ == "__main__":
    main()
