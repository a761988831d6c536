"""Keys of `[tool.cuwheel]` for one build, as Python gives them: made of the tables that check every configuration.

Type checkers, which run nothing, read `settings.pyi`: `./run docs` writes it from the same tables.
"""

from __future__ import annotations

from typing import Any, TypedDict

from cuwheel.building.tables import SETTINGS, setting_names


def _typed(name: str) -> type[dict[str, Any]]:
    return TypedDict(name, dict.fromkeys(setting_names(SETTINGS[name]), Any), total=False)


PlanSettings, GateSettings = _typed("PlanSettings"), _typed("GateSettings")
RepairSettings, GuardSettings = _typed("RepairSettings"), _typed("GuardSettings")
BuildSettings = _typed("BuildSettings")
BuildSettings.__doc__ = """\
Keys of `[tool.cuwheel]` for one build, over what the project says: what is left out stays as it is there.

The page of `build` says what each means. Machines and Pythons are fields of the request itself; so is `cuda`, which
here may also be empty: then the versions are chosen, whatever the project says.
"""
