"""The whole set, made anew: every file holds the entries that were meant, as cuwheel reads it and as cuobjdump does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code.survey import survey
from tests.fixtures import cache, cuobjdump
from tests.gpu import compiled_ahead, generate, variants

if TYPE_CHECKING:
    from tests.gpu.variants import Variant

TRUTH = Path(__file__).parent / "truth"
_KINDS = {"sm": "cubin", "compute": "ptx", "lto": "lto-ir"}


@pytest.mark.slow
@pytest.mark.download
def test_every_file_holds_what_was_meant(tmp_path: Path) -> None:
    wanted = variants.everything()
    numbers = generate.Numbers(wanted)
    wrong = []
    for index, variant in enumerate(wanted):
        path = tmp_path / f"{index}"
        try:
            path.write_bytes(generate.contents(variant, numbers))
        except cache.UnavailableError as error:
            pytest.skip(str(error))
        wrong += [f"{variants.name(variant)}: {why}" for why in problems(variant, path)]
    assert not wrong


def problems(variant: Variant, path: Path) -> list[str]:
    if variant.package:
        wheel = path.rename(path.with_name(f"pkg-1.{path.name}-py3-none-any.whl"))
        count = len(survey(wheel).libraries)
        return [] if count == len(variant.package) else [f"cuwheel finds {count} libraries"]
    (library,) = survey(path, detail="entries").libraries
    found = [(entry.kind, entry.arch, entry.ptx_isa) for entry in library.entries]
    why = [f"damaged: {finding.message}" for finding in library.findings if finding.severity == "error"]
    if variant.build is None and Counter(entry[:2] for entry in found) != Counter(meant(variant)):
        why.append(f"cuwheel reads {found}")
    # cuobjdump goes by the ISA in the header, cuwheel as the driver does by that in the text.
    changed = any(code.isa for container in variant.containers for code in container)
    if changed != any(finding.rule == "ptx-version-differs" for finding in library.findings):
        why.append("another ISA in the header is not told")
    if variant.form not in ("cubin", "ptx") and not changed:  # cuobjdump lists nothing of either
        listed = Counter((each.kind, each.arch, each.ptx_isa) for each in cuobjdump.list_entries(path).elements())
        read = Counter((kind, arch, isa or "") for kind, arch, isa in found)
        if listed != read:
            why.append(f"cuobjdump lists {listed}, cuwheel reads {read}")
    return why


def meant(variant: Variant) -> list[tuple[str, str]]:
    codes = [code for container in variant.containers for code in container]
    return [(_KINDS[code.piece.arch.split("_")[0]], code.piece.arch) for code in codes]


@pytest.mark.slow
def test_the_set_that_was_compiled_ahead(tmp_path: Path) -> None:
    """Nothing gives 222 any more; what the driver compiled writes the same numbers, though it may not compile now."""
    compiled_ahead.make_set(tmp_path, TRUTH)
    before, after = (
        {row["id"]: row for row in json.loads((each / "manifest.json").read_text())["variants"]}
        for each in (TRUTH, tmp_path)
    )
    was = Counter(before[name]["prediction"]["error"] == 222 for name in after)
    assert (was[True], was[False]) == (110, 271)
    assert sum(row["jit"] == "disabled" for row in after.values()) == 351
    for name, row in after.items():
        old, new = before[name]["prediction"], row["prediction"]
        assert new["error"] != 222
        if old["outcome"] == "jit" and old["kernels"]:
            assert new["kernels"] == old["kernels"]
