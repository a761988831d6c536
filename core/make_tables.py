"""Write the JSON that ships beside each TOML table of the core: `./run tables`."""

from __future__ import annotations

import json
from pathlib import Path

import tomli

PACKAGE = Path(__file__).parent / "src" / "cuwheel_core"


def as_json(table: Path) -> str:
    return json.dumps(tomli.loads(table.read_text(encoding="utf-8")), ensure_ascii=False, indent=1) + "\n"


def tables() -> list[Path]:
    return sorted(PACKAGE.rglob("*.toml"))


if __name__ == "__main__":
    for each in tables():
        each.with_suffix(".json").write_text(as_json(each), encoding="utf-8")
