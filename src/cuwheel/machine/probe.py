"""All probes in order, into one profile."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

from cuwheel.machine import compilers, environment, gpu, privacy, system, toolkits, variables
from cuwheel.machine.profile import MachineProfile
from cuwheel.machine.world import World


def probe(env: Path | None = None, world: World | None = None) -> MachineProfile:
    """This machine, seen from `env` (a Python environment's folder)."""
    world = world or World.here()
    python, site_packages = environment.locate(world, env)
    gpus, driver = gpu.probe_gpus(world)
    frameworks, packages = environment.probe_frameworks(site_packages)
    profile = MachineProfile(
        system=system.probe_system(world),
        driver=driver,
        gpus=gpus,
        toolkits=toolkits.probe_toolkits(world, site_packages),
        compilers=compilers.probe_compilers(world),
        tools=compilers.probe_tools(world),
        python=python,
        frameworks=frameworks,
        packages=packages,
        variables=variables.probe_variables(world),
        library_folders=variables.probe_library_folders(world, site_packages),
        trail=tuple(world.trail),
    )
    return privacy.scrub(profile, home=str(Path.home()), names=_names(world))


def _names(world: World) -> tuple[str, ...]:
    host = world.text("/etc/hostname") or platform.node()
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        user = ""
    return user, host, host.partition(".")[0]
