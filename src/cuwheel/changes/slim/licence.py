"""What the licence of a slimmed distribution says of changes, as far as its METADATA tells. No legal advice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 4
_PROPRIETARY = re.compile(r"^License(?:-Expression)?:.*NVIDIA.*Proprietary", re.IGNORECASE | re.MULTILINE)


def finding(metadata: Mapping[str, str]) -> tuple[Finding, ...]:
    """`metadata`: the METADATA of each distribution that is changed, by its name."""
    names = sorted(name for name, text in metadata.items() if _PROPRIETARY.search(text.partition("\n\n")[0]))
    if not names:
        return ()
    return (
        Finding(
            rule="licence-on-changes",
            severity="note",
            message="by their metadata, some of these packages are under NVIDIA's terms, which restrict changes",
            evidence=(a_few(names, _SHOWN),),
            fix="read their License.txt (docs/slim.md sums up what NVIDIA's says), and decide",
        ),
    )
