"""What is not known of a machine and must hold, as a value: an id and its parts. Words are made last."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

ConditionId: TypeAlias = Literal[
    "linked",  # it is an object or archive, which runs nowhere as it is
    "driver-runtime",  # the driver runs its CUDA runtime
    "driver-ptx",  # the driver compiles its PTX
    "driver-link",  # the driver links its objects
    "driver-zstd",  # the driver reads its compressed code
    "driver-gpu-first",  # the driver is not from before the GPU
    "driver-gpu-last",  # the driver is not from after its support
    "linker-ptx",  # nvJitLink links its PTX
    "jetson-l4t",  # the Jetson has an L4T that server builds run on
    "jetson-server",  # server builds run on this Jetson, which nobody has confirmed
    "jetson-joined",  # a server build from before the Jetson joined runs on it
]


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`driver`: the oldest that will do; `branch`: the newest. `cuda`: what it must be of; of a Jetson, that of
    the build, and `since` the one that it joined with. `isa`: of the PTX. `jetpack`: what must be installed.
    """

    id: ConditionId
    driver: str | None = None
    branch: str | None = None
    cuda: str | None = None
    isa: str | None = None
    jetpack: str | None = None
    since: str | None = None

    def __str__(self) -> str:
        return self.words

    @property
    def words(self) -> str:
        """The condition for people."""
        match self.id:
            case "linked":
                return "it is linked into a library or a program"
            case "driver-runtime":
                return self._driver
            case "driver-ptx":
                known = self.driver or self.cuda
                return (
                    f"{self._driver}, to compile its PTX (ISA {self.isa})"
                    if known
                    else f"a driver that compiles PTX ISA {self.isa}"
                )
            case "driver-link":
                return f"{self._driver}, to link its objects"
            case "driver-zstd":
                return f"driver {self.driver} or later, to read ZSTD-compressed device code"
            case "driver-gpu-first":
                return f"driver {self.driver} or later, the first to support this GPU"
            case "driver-gpu-last":
                return f"a driver of branch {self.branch} or older: {self.branch} is the last to support this GPU"
            case "linker-ptx":
                return f"nvJitLink of CUDA {self.cuda or 'that release'} or later, which links its PTX (ISA {self.isa})"
            case "jetson-l4t":
                return f"{self.jetpack}, which CUDA for servers serves"
            case "jetson-server":
                return f"CUDA {self.cuda} or later for servers runs on this Jetson (not confirmed)"
            case "jetson-joined":
                since = f"which joined them with {self.since}"
                return f"what CUDA {self.cuda} built for servers runs on this Jetson, {since} (not confirmed)"

    @property
    def _driver(self) -> str:
        if self.driver is None:
            return f"a driver of CUDA {self.cuda} or later"
        return f"driver {self.driver} or later (CUDA {self.cuda})"
