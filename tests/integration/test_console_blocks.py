"""What README and docs show of a terminal is what the commands print: documentation that rots fails here.

Every block that begins with `$ cuwheel` is either run, or listed below with the reason why it cannot be.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cuwheel import api
from tests.fixtures import manifest
from tests.fixtures.command import call
from tests.oracle import packages
from tests.oracle.packages import Published
from tests.unit.delivery import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md")))
MORE = "…"  # stands for lines, or for the rest of one, that the page leaves out

# By the beginning of the command.
NOT_HERE = {
    "cuwheel doctor --on gpu07.json": "a colleague's profile, which is not published",
    "cuwheel trace": "needs a GPU",
    "cuwheel build": "compiles for minutes; tests/integration/test_build_examples.py builds the same examples",
    "cuwheel verify dist/": "of a wheel that the build above it made",
    "cuwheel repair dist/": "the same",
    "cuwheel publish dist/": "of wheels that the build above it made",
    "cuwheel publish --check index": "of an index that was damaged; tests/unit/delivery has such",
    "cuwheel publish bitsandbytes": "of a wheel that was downloaded; tests/integration/test_publish.py runs the same",
    "cuwheel install": "changes an environment of the reader's; tests/integration/test_install.py runs the same",
    "cuwheel record": "needs nvcc; tests/integration/test_record_builds.py runs the same",
    "cuwheel find torch": "answers by what is on the reader's index today",
    "cuwheel find 'torch": "the same",
    "cuwheel check torchvision": "needs an environment with torch",
    "cuwheel graft": "of libraries that were compiled for it; tests/integration/test_graft.py compiles and grafts such",
    "cuwheel lab trials": "counts by chance, over minutes; lab/tests/integration/test_trials.py runs such programs",
    "cuwheel lab bench": "times, which differ; lab/tests/integration/test_bench.py runs it",
    "cuwheel catalogue list": "shows the data that ship, which grow; tests/integration/test_catalogue.py has one",
}


def _wheel(folder: Path, machine: str = "x86_64") -> Path:
    named = Published(name="bitsandbytes", version="0.50.2", platform=f"manylinux_2_24_{machine}")
    return Path(shutil.copy(packages.wheel(named), folder))


def _libraries(folder: Path) -> None:
    with zipfile.ZipFile(_wheel(folder)) as wheel:
        for name in ("libbitsandbytes_cuda126.so", "libbitsandbytes_cuda128.so"):
            (folder / name).write_bytes(wheel.read(f"bitsandbytes/{name}"))


# What a block needs in its folder; these download.
NEEDS: dict[str, Callable[[Path], object]] = {
    "cuwheel inspect bitsandbytes==": lambda _folder: None,
    "cuwheel slim bitsandbytes==": lambda _folder: None,
    "cuwheel check bitsandbytes==": lambda _folder: None,
    "cuwheel inspect libbitsandbytes": _libraries,
}


_ERROR = """\
Traceback (most recent call last):
  File "/srv/app/serve.py", line 12, in <module>
    out = model(batch.cuda())
  File "/srv/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device
"""


def _wheels(folder: Path) -> Path:
    for version, library in (("1.0+cu130", "plain-130.so"), ("1.0+cu124", "plain-124.so")):
        tag = "py3-none-manylinux_2_28_x86_64"
        published.cuda_wheel(folder / "dist", version, "fastmath", library, tag=tag)
    return folder / "dist"


def _fleet(folder: Path) -> None:
    _wheels(folder)
    page = (ROOT / "docs/start/will-it-run-on-our-machines.md").read_text()
    (folder / "fleet.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])


# The same, of what is at hand.
MADE: dict[str, Callable[[Path], object]] = {
    "cuwheel explain error.log": lambda folder: (folder / "error.log").write_text(_ERROR),
    "cuwheel publish dist --to team": _wheels,
    "cuwheel check dist/fastmath": _fleet,
    "cuwheel publish --check team": lambda folder: api.publish(_wheels(folder), to=folder / "team"),
    "cuwheel find fastmath": lambda folder: api.publish(_wheels(folder), to=folder / "team"),
    "cuwheel inspect libkernels.so": lambda folder: shutil.copy(
        manifest.HERE / "bin" / "all-124.so", folder / "libkernels.so"
    ),
}


class Block(NamedTuple):
    page: str
    line: int
    command: str
    output: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        lines = page.read_text().splitlines()
        inside = False
        for number, line in enumerate(lines):
            if line.startswith("```"):
                inside = not inside
            if inside and line.startswith("$ cuwheel"):
                yield _block(page, number, lines)


def _block(page: Path, number: int, lines: list[str]) -> Block:
    words = [lines[number].removeprefix("$ ")]
    at = number + 1
    while words[-1].endswith("\\"):
        words.append(lines[at].strip())
        at += 1
    command = " ".join(each.removesuffix("\\").strip() for each in words)
    output = itertools.takewhile(lambda line: not line.startswith(("```", "$ ")), lines[at:])
    return Block(page.relative_to(ROOT).as_posix(), number + 1, command, tuple(output))


def _reason(block: Block) -> str | None:
    return next((why for start, why in NOT_HERE.items() if block.command.startswith(start)), None)


BLOCKS = list(_blocks())
RUN = [each for each in BLOCKS if _reason(each) is None]


def _needs(block: Block, kinds: dict[str, Callable[[Path], object]]) -> Callable[[Path], object] | None:
    return next((prepare for start, prepare in kinds.items() if block.command.startswith(start)), None)


def test_there_are_blocks_to_run() -> None:
    assert len(RUN) >= 3


def test_what_a_reason_names_is_there() -> None:
    named = re.findall(r"(?:lab/)?tests/\S+\.py", " ".join(NOT_HERE.values()))
    assert [each for each in named if not (ROOT / each).is_file()] == []


@pytest.mark.parametrize("start", [*NOT_HERE, *NEEDS, *MADE])
def test_no_reason_is_left_over(start: str) -> None:
    assert any(block.command.startswith(start) for block in BLOCKS)


@pytest.mark.parametrize(
    "block",
    [pytest.param(each, marks=[pytest.mark.download] if _needs(each, NEEDS) else [], id=str(each)) for each in RUN],
)
def test_it_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    if prepare := _needs(block, NEEDS | MADE):
        prepare(tmp_path)
    words = shlex.split(block.command)
    assert words[0] == "cuwheel"
    run = call(*words[1:], cwd=tmp_path, env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"})
    # Whether something is fetched, or was before, is not what the page shows.
    printed = [each for each in (run.stderr + run.stdout).splitlines() if not each.startswith("downloading ")]
    assert _shows(list(map(_plain, block.output)), list(map(_plain, printed))), "\n".join(printed)


def _plain(line: str) -> str:
    """Numbers, times and widths apart."""
    return re.sub(r"\s+", " ", re.sub(r"\d+([.,]\d+)*", "0", line)).strip()


def _shows(shown: list[str], printed: list[str]) -> bool:
    """Line by line; where the page leaves lines out, from the first later line that fits."""
    shown, printed = ([each for each in lines if each] for lines in (shown, printed))
    if not shown:
        return not printed
    head, rest = shown[0], shown[1:]
    if head == MORE:
        return not rest or any(_shows(rest, printed[at:]) for at in range(len(printed)))
    if not printed:
        return False
    fits = printed[0].startswith(head.removesuffix(MORE)) if head.endswith(MORE) else printed[0] == head
    return fits and _shows(rest, printed[1:])


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", MORE, "c"], ["a", "b", "b", "c"], True),
        (["a", MORE], ["a"], True),
        (["a 0 MB"], ["a 0 MB"], True),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        ([f"a{MORE}"], ["abc"], True),
        (["a", MORE, "d"], ["a", "b", "c"], False),
    ],
)
def test_what_counts_as_the_same(shown: list[str], printed: list[str], *, same: bool) -> None:
    assert _shows(shown, printed) is same
