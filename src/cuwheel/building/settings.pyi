# Written by ./run docs.

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from cuwheel.building.tables import Backend as Backend
from cuwheel.building.tables import Naming as Naming

class PlanSettings(TypedDict, total=False):
    future: bool
    native: bool
    specific: bool
    family: bool
    ptx: bool

class GateSettings(TypedDict, total=False):
    enabled: bool
    device_code: bool
    allow: Sequence[str]
    forbidden: Sequence[str]
    glibc: str | None
    size: str | None

class RepairSettings(TypedDict, total=False):
    enabled: bool | None
    policy: str | None
    exclude: Sequence[str]
    requires: bool

class GuardSettings(TypedDict, total=False):
    package: str | None
    inject: bool
    message: str

class BuildSettings(TypedDict, total=False):
    recipe: bool
    cuda: Sequence[str]
    cpu: Literal["x86_64", "aarch64"] | None
    subdirectory: str
    backend: Backend
    requires: Sequence[str]
    components: Sequence[str]
    environment: Mapping[str, str]
    pass_through: Sequence[str]
    before: Sequence[str]
    config_settings: Mapping[str, str]
    force_archs: bool
    naming: Naming | None
    label: str
    python_tag: str | None
    merge: bool
    variants: bool
    cache: bool
    timeout: float
    plan: PlanSettings
    gate: GateSettings
    repair: RepairSettings
    guard: GuardSettings | Literal["inject"]
