"""./run facts: shows where the tables and their sources differ; exit 1 where nobody has explained it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from facts import libraries, messages, names, opinions, packages, toolkits, torch, torch_symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from facts.difference import Difference

_EXPLAINED = Path(__file__).with_name("explained.toml")
# Each with the files of --sources that it reads.
_INDEX: dict[str, Callable[[], Iterator[Difference]]] = {
    "libraries": libraries.check,
    "torch": torch.check,
    "packages": packages.check,
    "toolkits": toolkits.check,
}
_SOURCES: dict[str, tuple[Callable[[Path], Iterator[Difference]], tuple[str, ...]]] = {
    "names": (names.check, (names.NAMES, names.CHIPS)),
    "cmake": (opinions.check_cmake, (opinions.CMAKE,)),
    "llvm": (opinions.check_llvm, (opinions.LLVM,)),
    "nixpkgs": (opinions.check_nixpkgs, (opinions.NIXPKGS,)),
    "spack": (opinions.check_spack, (opinions.SPACK,)),
}


class Explained(NamedTuple):
    """A difference that is known, and why the table stays as it is. `what` and `source` may hold `*`."""

    what: str
    source: str
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run facts", description=__doc__)
    parser.add_argument(
        "--sources", type=Path, metavar="FOLDER", help="with files as docs/reference/facts.md lists them"
    )
    parser.add_argument("--only", action="append", choices=[*_INDEX, *_SOURCES], help="one part; may be repeated")
    parser.add_argument(
        "--torch-symbols", action="store_true", help="add new releases of torch to torch_symbols.zst instead"
    )
    parser.add_argument(
        "--messages",
        nargs="?",
        const="",
        choices=["", *messages.TOOLS],
        metavar="TOOL",
        help="what the tools can say and which of it `explain` knows; with a tool's name, every message",
    )
    args = parser.parse_args()
    if args.messages is not None:
        messages.show(args.messages)
        return 0
    if args.torch_symbols:
        for release in torch_symbols.update():
            print(f"torch {release}", flush=True)
        return 0
    rows = msgspec.toml.decode(_EXPLAINED.read_bytes())["explained"]
    known = [Explained(row["what"], row["source"], row["why"]) for row in rows]
    open_ = 0
    for part in [*_INDEX, *_SOURCES]:
        if args.only and part not in args.only:
            continue
        if part in _SOURCES and (missing := _missing(part, args.sources)):
            print(f"{part}: not checked: --sources has no {', '.join(missing)}")
            continue
        found = list(_INDEX[part]() if part in _INDEX else _SOURCES[part][0](args.sources))
        unexplained = [each for each in found if not _why(each, known)]
        open_ += len(unexplained)
        print(f"{part}: {len(found)} differences, {len(unexplained)} of them not explained", flush=True)
        for each in found:
            print(f"  {each}" + (f"  [{why}]" if (why := _why(each, known)) else ""))
    return 1 if open_ else 0


def _missing(part: str, folder: Path | None) -> list[str]:
    return [each for each in _SOURCES[part][1] if folder is None or not (folder / each).exists()]


def _why(difference: Difference, known: list[Explained]) -> str:
    from fnmatch import fnmatchcase

    fits = (
        row.why
        for row in known
        if fnmatchcase(difference.what, row.what) and fnmatchcase(difference.source_says, row.source)
    )
    return next(fits, "")


if __name__ == "__main__":
    sys.exit(main())
