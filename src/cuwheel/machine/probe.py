"""All probes in order, into one profile."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from cuwheel.machine import compilers, gpu, python_environment, system
from cuwheel.machine.profile import MachineProfile, scrub
from cuwheel.machine.world import World

T = TypeVar("T")


def probe(env: Path | None = None, world: World | None = None, *, for_builds: bool = True) -> MachineProfile:
    """This machine, seen from `env` (a Python environment's folder).

    `for_builds`: False where only the question is what runs here: no compiler and no build tool is started.
    """
    world = world or World.here()
    python, site_packages = python_environment.locate(world, env)
    waiting = _Together(world)
    asked = waiting.start(gpu.probe_gpus)
    found = waiting.start(lambda its: compilers.probe_toolkits(its, site_packages, ask_nvcc=for_builds))
    host = waiting.start(compilers.probe_compilers) if for_builds else tuple
    tools = waiting.start(compilers.probe_tools) if for_builds else tuple
    frameworks, packages = python_environment.probe_frameworks(site_packages)
    its_system = system.probe_system(world)
    gpus, driver = asked()
    profile = MachineProfile(
        system=its_system,
        driver=driver,
        gpus=gpus,
        toolkits=found(),
        compilers=host(),
        visual_studios=compilers.probe_visual_studios(world) if for_builds else (),
        tools=tools(),
        python=python,
        frameworks=frameworks,
        packages=packages,
        variables=system.probe_variables(world, env),
        library_folders=system.probe_library_folders(world, site_packages),
        trail=tuple(world.trail),
    )
    return scrub(profile, home=str(Path.home()), names=_names(world))


class _Together:
    """Probes that wait for programs, at the same time; what they note comes in the order in which they are asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pool = ThreadPoolExecutor()

    def start(self, probe: Callable[[World], T]) -> Callable[[], T]:
        its = replace(self._world, trail=[])
        asked = self._pool.submit(probe, its)

        def result() -> T:
            try:
                return asked.result()
            finally:
                self._world.trail += its.trail

        return result


def _names(world: World) -> tuple[str, ...]:
    host = world.text("/etc/hostname") or platform.node()
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        user = ""
    return user, host, host.partition(".")[0]
