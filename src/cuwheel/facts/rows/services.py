"""What services and tools offer and accept: parts of workflows, the public index, ready-made checks, variants."""

from __future__ import annotations

from msgspec import Struct, field

from cuwheel_core.facts.rows.common import Source


class Action(Struct, frozen=True, kw_only=True):
    """`commit`: what the tag `version` means."""

    name: str
    version: str
    commit: str
    source: tuple[str, ...]


class Runner(Struct, frozen=True, kw_only=True):
    """A hosted runner with a processor."""

    cpu: str
    label: str
    system: str = "linux"
    service: str = "github"
    source: tuple[str, ...]


class Ci(Struct, frozen=True, kw_only=True):
    """ci.toml."""

    sources: dict[str, Source]
    action: tuple[Action, ...]
    runner: tuple[Runner, ...]


# What the public index accepts of uploads.


class UploadIndex(Struct, frozen=True, kw_only=True):
    """`largest`: bytes of a file, unless the index raised it for a project; `largest_project`: of all its files.

    `days`: after which a release takes no further files. `platforms`: tags, as regular expressions.
    """

    name: str
    local_versions: bool
    variants: bool
    normalised_names: bool
    days: int
    largest: int
    largest_project: int
    platforms: tuple[str, ...]
    source: tuple[str, ...]


class Identity(Struct, frozen=True, kw_only=True):
    """Who can attest a file. `variable`: set where a job may ask for an identity.

    `pattern`: of its name in a certificate; what its groups match are the claims of a bundle's publisher.
    """

    kind: str
    variable: str
    pattern: str
    source: tuple[str, ...]


class Indexes(Struct, frozen=True, kw_only=True):
    """indexes.toml."""

    sources: dict[str, Source]
    public: UploadIndex
    identity: tuple[Identity, ...]


# What a check of an installed package must do, and ready-made ones of packages that many use.


class CheckTerms(Struct, frozen=True, kw_only=True):
    """What a check must do, and where it can.

    `expect`: texts that must be in the output. `number`: the last number printed, within `tolerance` of it.
    `gpu`: whether it needs one; `capabilities`: which (`9.0`); elsewhere the check is skipped and listed as such.
    """

    expect: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    status: int = 0
    number: float | None = None
    tolerance: float = 0.0
    gpu: bool = False
    capabilities: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


class KnownCheck(CheckTerms, frozen=True, kw_only=True):
    """One of `command` and `python`; as in `[[verify.check]]`: see checks.toml.

    `expect_cuda`: in place of `expect` where a CUDA version is asked for; `{cuda}` is its release with the sign
    behind it, so that 12.2 is not 12.21: `12.2,`; `12.` for a major alone.
    """

    packages: tuple[str, ...]
    name: str
    source: tuple[str, ...]
    command: str | None = None
    python: str | None = None
    expect_cuda: tuple[str, ...] = ()
    cpu_library: str = ""
    program: str = ""
    timeout: float | None = None


class Checks(Struct, frozen=True, kw_only=True):
    """checks.toml."""

    sources: dict[str, Source]
    check: tuple[KnownCheck, ...]


# What installers know of wheel variants.


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of properties, the names of its features, and the values that it knows: see variants.toml."""

    namespace: str
    requires: str
    plugin_api: str
    lower_bound: str
    upper_bound: str
    arch: str
    cuda_majors: tuple[int, int]
    capability_majors: tuple[int, int]
    source: tuple[str, ...]


class Variants(Struct, frozen=True, kw_only=True):
    """variants.toml."""

    sources: dict[str, Source]
    checked: str
    schema: str
    provider: Provider
