"""Commands where the toolkit is: as they are, or inside a container that sees the folders of the build."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cuwheel.toolchains.toolchain import Installed


def command(
    toolkit: Installed,
    words: Sequence[str | Path],
    *,
    folders: Sequence[Path] = (),
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """`words` to hand to `process.run`. `folders` are seen inside under the same path, and `environ` is set there."""
    plain = tuple(str(word) for word in words)
    if not toolkit.prefix:
        return plain
    *run, image = toolkit.prefix
    mounts = [word for folder in folders for word in ("--volume", f"{folder}:{folder}")]
    place = ["--workdir", str(cwd)] if cwd else []
    variables = [word for name, value in (environ or {}).items() for word in ("--env", f"{name}={value}")]
    return (*run, *mounts, *place, *variables, image, *plain)


def user() -> tuple[str, ...]:
    """So that written files belong to the user who started the build."""
    return ("--user", f"{os.getuid()}:{os.getgid()}")
