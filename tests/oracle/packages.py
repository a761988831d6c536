"""The wheels of packages.toml, downloaded into the test cache on first use."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.fixtures import cache

# pip must be told every tag that it may take; a wheel for an older glibc is fine too.
_GLIBC = (*(f"manylinux_2_{minor}" for minor in range(39, 16, -1)), "manylinux2014")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    name: str
    version: str
    platform: str

    def __str__(self) -> str:
        return f"{self.name}-{self.version}-{self.platform.split('_', 1)[0]}-{self.machine}"

    @property
    def machine(self) -> str:
        return next(each for each in ("x86_64", "aarch64", "amd64", "arm64") if self.platform.endswith(each))


def published() -> list[Published]:
    table = msgspec.toml.decode((Path(__file__).parent / "packages.toml").read_text())
    return [
        Published(name=package["name"], version=version, platform=platform)
        for package in table["package"]
        for version in package["versions"]
        for platform in package["platforms"]
        if f"{version} {platform}" not in package.get("unpublished", ())
    ]


def wheel(package: Published) -> Path:
    """Its file, after a download on first use. Raises UnavailableError."""
    found = cache.made(f"wheels/{package}", lambda target: _download(target, package))
    return next(found.glob("*.whl"))


def _download(target: Path, package: Published) -> None:
    platforms = [package.platform]
    if package.platform.startswith("manylinux"):
        platforms = [f"{glibc}_{package.machine}" for glibc in _GLIBC]
    options = [word for platform in platforms for word in ("--platform", platform)]
    requirement = f"{package.name}=={package.version}"
    cache.pip_download(target, requirement, "--python-version", "3.11", *options)


if __name__ == "__main__":  # fetch everything: python -m tests.oracle.packages
    for each in published():
        file = wheel(each)
        sys.stdout.write(f"{file.stat().st_size / 1e6:8.1f} MB  {file.name}\n")
        sys.stdout.flush()
