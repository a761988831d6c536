"""What manylinux tags promise of libstdc++, against auditwheel's own policies."""

from __future__ import annotations

import json
from importlib import resources

from cuwheel.facts.tables import tables
from cuwheel_core.facts import versions


def test_the_table_is_auditwheels() -> None:
    file = resources.files("auditwheel") / "policy" / "manylinux-policy.json"
    seen = 0
    for row in json.loads(file.read_text()):
        symbols = row["symbol_versions"].get("x86_64")
        if not row["name"].startswith("manylinux_") or not symbols:
            continue
        own = tables().manylinux.policy_of(row["name"].removeprefix("manylinux_").replace("_", "."))
        assert own is not None
        numbered = [each for each in symbols["CXXABI"] if each.replace(".", "").isdigit()]
        assert own.glibcxx == max(symbols["GLIBCXX"], key=versions.key), row["name"]
        assert own.cxxabi == max(numbered, key=versions.key), row["name"]
        seen += 1
    assert seen > 10
