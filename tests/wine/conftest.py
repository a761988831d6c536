"""Every test here needs Wine; those with several programs share one folder on its drive C:."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.cache import UnavailableError
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def drive_c() -> Path:
    """Wine's, with Python for Windows at hand; where there is none the reason is said."""
    if why := windows.missing():
        pytest.skip(why)
    try:
        windows.python()
        return windows.prefix() / "drive_c"
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def share(drive_c: Path) -> Iterator[str]:
    """A folder of a server, as Wine shows one, with a blank in its name."""
    name = f"a share {uuid.uuid4().hex[:8]}"
    folder = drive_c.parent / "dosdevices" / "unc" / "server" / name
    folder.mkdir(parents=True)
    yield f"\\\\server\\{name}"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(drive_c: Path) -> Iterator[Path]:
    """A new folder on C:, with a blank and a letter beyond ASCII in its name."""
    folder = drive_c / f"täst place {uuid.uuid4().hex[:8]}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
