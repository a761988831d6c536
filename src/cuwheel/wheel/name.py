"""The name of a wheel's file, the one thing about it that every tool goes by."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

_SUFFIX = ".whl"
_FEWEST, _MOST = 5, 7


class WheelName(Struct, frozen=True, kw_only=True):
    """`name-version(-build)?-python-abi-platform(-variant)?.whl`, every part as it is spelt there.

    `python`, `abi` and `platform` may be several, joined by dots. `variant`: the label of PEP 825.
    """

    name: str
    version: str
    python: str
    abi: str
    platform: str
    build: str | None = None
    variant: str | None = None

    @classmethod
    def parse(cls, file_name: str) -> WheelName | None:
        """None if this is not the name of a wheel."""
        parts = file_name.removesuffix(_SUFFIX).split("-")
        if not file_name.endswith(_SUFFIX) or not _FEWEST <= len(parts) <= _MOST or not all(parts):
            return None
        name, version, *rest = parts
        # A build number begins with a digit, and no tag for Pythons does.
        build = rest.pop(0) if len(rest) > _FEWEST - 2 and rest[0][0].isdigit() else None
        if len(rest) not in (_FEWEST - 2, _FEWEST - 1):
            return None
        python, abi, platform, *variant = rest
        return cls(
            name=name,
            version=version,
            build=build,
            python=python,
            abi=abi,
            platform=platform,
            variant=variant[0] if variant else None,
        )

    def __str__(self) -> str:
        parts = (self.name, self.version, self.build, self.python, self.abi, self.platform, self.variant)
        return "-".join(each for each in parts if each) + _SUFFIX

    @property
    def plain(self) -> WheelName:
        """Without the label of a variant, which most tools do not know."""
        return replace(self, variant=None)

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(self.platform.split("."))

    @property
    def tags(self) -> tuple[str, ...]:
        """Each combination: `cp312-cp312-manylinux_2_17_x86_64` and so on."""
        return tuple(
            f"{python}-{abi}-{platform}"
            for python in self.python.split(".")
            for abi in self.abi.split(".")
            for platform in self.platforms
        )


def plain_name(file_name: str) -> str:
    """Of a wheel's file, without the label of a variant; anything else as it is."""
    name = WheelName.parse(file_name)
    return str(name.plain) if name and name.variant else file_name
