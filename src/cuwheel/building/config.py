"""The configuration of a build: found, read, checked whole, and overridden by what the command line says.

Keys are written with hyphens. What Python calls them (`pass_through`, `for_`) is taken too.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from cuwheel.building import tables
from cuwheel.building.tables import GuardTable, Table
from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.support import codec, extensions, limited, log
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.support import bounded, wording
from cuwheel_core.wheel.tags import normalised

Kind = TypeVar("Kind", bound=Struct)

FILE = "cuwheel.toml"
PYPROJECT = "pyproject.toml"
_TOML = 'it is written as TOML, in lines such as cuda = ["13.0"]'
_INJECT = "inject"  # `guard = "inject"`, in short for `guard = { inject = true }`
_WITH_COMMAS = ("requires", "before")  # whose texts may have commas themselves: torch>=2,<3
_LISTS = ("for", "cuda", "python")  # a text of these may be a list with commas, as on the command line


class FoundConfiguration(Struct, frozen=True, kw_only=True):
    """A configuration and where it came from: `path` is None if there is none.

    `keys`: those that it or a caller sets, as the table calls them; what is not among them has its default.
    """

    path: Path | None
    table: Table
    keys: dict[str, Any]


@functools.cache
def _keys(table: type[Struct]) -> dict[str, FieldInfo]:
    """Those of a table. A file may have thousands of rows of a kind."""
    return {each.encode_name: each for each in fields(table)}


def find_configuration(source: Path | None, file: Path | None, overrides: Mapping[str, object]) -> FoundConfiguration:
    """Reads the configuration of a source folder, or that in a file; `overrides` are nested as the tables are."""
    path, data, where = _read(source, file, str(overrides.get("subdirectory", "")))
    above = _by_override(overrides)
    problems: list[str] = []
    keys, table = _checked(_without_tables_of_others(data, where, problems), where, problems)
    if problems:
        raise ConfigurationError(
            path or "the configuration", [each.removeprefix(": ") for each in problems], _hint(problems)
        )
    if above:
        keys = _merged(keys, above)
        table = codec.convert(keys, Table)
        if wrong := list(tables.problems_of_table(table)):  # the file is right: an option is wrong
            raise UsageError("; ".join(wrong), hint="cuwheel build --help")
    return FoundConfiguration(path=path, table=table, keys=keys)


def table_of_verb(name: str, kind: type[Kind], source: Path) -> Kind:
    """What the configuration of a source folder says in the table of another distribution's verb."""
    path, data, where = _read(source, None, "")
    problems: list[str] = []
    found = _table_of_others(data.get(name, {}), kind, f"{where}.{name}" if where else name, problems)
    if problems:
        raise ConfigurationError(path or "the configuration", problems)
    return codec.convert(found, kind)


def _table_of_others(data: Any, kind: type[Struct], where: str, problems: list[str]) -> Any:  # noqa: ANN401 - any TOML
    named = _by_key(data, kind, where, problems) if isinstance(data, dict) else data
    codec.convert_or_list_problems(named, kind, where, problems)
    return named


def _without_tables_of_others(data: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """What is a build's own. A table that is called like another distribution's verb is checked as that one says."""
    own = {key: value for key, value in data.items() if _key(str(key), _keys(Table)) in _keys(Table)}
    for key, value in data.items():
        if key in own:
            continue
        word = extensions.find_word(str(key))
        if word is None or not word.table:
            own[key] = value  # unknown, which is reported
            continue
        module, _, name = word.table.rpartition(".")
        kind = getattr(import_module(f"{word.package}.{module}"), name)
        _table_of_others(value, kind, f"{where}.{key}" if where else str(key), problems)
    return own


def over_recipe(below: dict[str, Any], found: FoundConfiguration) -> Table:
    """A configuration laid over the settings of a recipe, key by key. What both need for the build adds up."""
    above = found.keys
    merged = _merged(below, above)
    merged["components"] = list(dict.fromkeys((*above.get("components", ()), *below.get("components", ()))))
    # A requirement that names the same package takes the place of the recipe's.
    own = above.get("requires", ())
    named = {_project_of(each) for each in own}
    rest = (each for each in below.get("requires", ()) if _project_of(each) not in named)
    merged["requires"] = [*own, *rest]
    return codec.convert(merged, Table)


def _project_of(requirement: str) -> str:
    return normalised(limited.requirement(requirement).name)


def read_recipe_settings(data: dict[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """The keys that a recipe sets, checked as every configuration is."""
    return _checked(data, where, problems)[0]


def _checked(data: dict[str, Any], where: str, problems: list[str]) -> tuple[dict[str, Any], Table]:
    """The data by the keys of the table, and the table that it gives; all that is wrong goes to `problems`."""
    keys = _by_key(data, Table, where, problems)
    # Where a key has not the right shape, the others are looked at all the same.
    table = codec.convert_or_list_problems(keys, Table, where, problems) or codec.convert(_readable(keys), Table)
    problems += [f"{where}.{each}" if where else each for each in tables.problems_of_table(table)]
    return keys, table


def _readable(named: dict[str, Any], type_: Any = Table) -> dict[str, Any]:  # noqa: ANN401
    """What has the right shape: a key that has not must not hide what is wrong with the others."""
    good: dict[str, Any] = {}
    for key, value in named.items():
        if (found := _keys(type_).get(key)) is None:
            continue  # an unknown key, which was reported
        hint = found.type
        if codec.is_value(hint) and isinstance(value, dict):
            good[key] = _readable(value, hint)
        elif typing.get_origin(hint) is dict and isinstance(value, dict):
            good[key] = {name: each for name, each in value.items() if isinstance(each, str)}
        elif key in _LISTS and isinstance(value, list):
            good[key] = [each for each in value if isinstance(each, str)]
        elif codec.convert_or_list_problems({key: value}, type_, "", []) is not None:
            good[key] = value
    return good


def _hint(problems: list[str]) -> str:
    if any("got `float`" in each or "got `int`" in each for each in problems):
        return 'versions must be strings: cuda = ["13.0"]'
    return hint_of_keys()


def _read(source: Path | None, file: Path | None, below: str) -> tuple[Path | None, dict[str, Any], str]:
    """The file, what it says, and how its table is called in messages. `below`: the folder of the project in it."""
    if file:
        return _from(file, codec.read_configuration(file, _TOML))
    for folder in dict.fromkeys((source / below, source)) if source else ():
        own, project = folder / FILE, folder / PYPROJECT
        data = codec.read_configuration(project, _TOML) if project.is_file() else {}
        also = _tool(data) is not None
        if own.is_file():
            if also:
                log.warning("%s is used; [tool.cuwheel] of %s is not", own, project)
            return _from(own, codec.read_configuration(own, _TOML))
        if also:
            return _from(project, data)
    return None, {}, ""


def _from(path: Path, data: dict[str, Any]) -> tuple[Path, dict[str, Any], str]:
    own = _tool(data)
    if own is not None or path.name == PYPROJECT:
        if not isinstance(own, dict | None):
            raise ConfigurationError(path, ["tool.cuwheel must be a table"], hint_of_keys())
        return path, own or {}, "tool.cuwheel"
    return path, data, ""


def _tool(data: dict[str, Any]) -> Any:  # noqa: ANN401 - a person wrote it
    tool = data.get("tool")
    return tool.get("cuwheel") if isinstance(tool, dict) else None


def _by_override(overrides: Mapping[str, object]) -> dict[str, Any]:
    problems: list[str] = []
    named = _by_key(dict(overrides), Table, "", problems)
    codec.convert_or_list_problems(codec.builtins(named), Table, "", problems)
    if problems:
        raise UsageError("; ".join(each.removeprefix(": ") for each in problems), hint="cuwheel build --help")
    return named


def settings_of(assignments: Iterable[str]) -> dict[str, Any]:
    """`merge=true`, `plan.future=true`, `environment.USE_CUDA=1`: keys of the configuration, as `--set` takes them.

    Values as they are written in a shell: without quotation marks, lists with commas. A list that is set twice has
    what both say. Keys in the answer are as Python calls them.
    """
    result: dict[str, Any] = {}
    for each in assignments:
        path, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"{each[:80]!r} is not a key and its value, such as merge=true")
        place, table, names = result, Table, path.strip().split(".")
        while names:
            key = _key(names.pop(0), _keys(table))
            if (found := _keys(table).get(key)) is None:
                raise UnknownNameError("key of the configuration", path[:80], wording.similar_names(key, _keys(table)))
            name, hint = found.name, found.type
            if typing.get_origin(hint) is dict and names:
                place.setdefault(name, {})[".".join(names)] = text
                break
            if codec.is_value(hint) and names:
                place, table = place.setdefault(name, {}), hint
                continue
            value = _typed(text, hint, key) if not names else None
            if value is None:
                raise UsageError(f"{path[:80]}: this cannot be set on the command line", hint=hint_of_keys())
            place[name] = [*place.get(name, []), *value] if isinstance(value, list) else value
            names = []
    named = _by_override(result)  # says what is wrong with it
    if wrong := list(tables.problems_of_table(codec.convert(named, Table))):
        raise UsageError("; ".join(wrong))
    return result


def hint_of_keys() -> str:
    """All that a configuration may have; what is in a table behind a dot, as `--set` takes it."""
    named: list[str] = []
    for key, each in _keys(Table).items():
        inner = _keys(each.type) if codec.is_value(each.type) else {}
        named += [f"{key}.{below}" for below in inner] or [key]
    return f"the keys are {', '.join(named)}"


def _typed(text: str, hint: Any, key: str) -> Any:  # noqa: ANN401
    """A text as the type of its key wants it; None for tables and lists of them."""
    if hint is GuardTable and text == _INJECT:
        return text
    if _item(hint) is str:
        return [text] if key in _WITH_COMMAS else [part.strip() for part in text.split(",") if part.strip()]
    if codec.is_value(hint) or _item(hint) or typing.get_origin(hint) is dict:
        return None
    kinds = {hint, *typing.get_args(hint)}
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kinds & {int, float}:
        found = bounded.real(text) if float in kinds else bounded.whole(text)
        return text if found is None else found
    return text


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables are joined key by key, everything else is replaced."""
    both = {key: _merged(below[key], above[key]) for key in above if isinstance(below.get(key), dict)}
    return below | above | both


def _by_key(data: dict[str, Any], table: Any, where: str, problems: list[str]) -> dict[str, Any]:  # noqa: ANN401
    """The data by the keys of the table, in tables of tables too; a text where a list is meant becomes one."""
    result: dict[str, Any] = {}
    for written, value in data.items():
        key = _key(str(written), _keys(table))
        if key in result:
            problems.append(f"{where}: {key!r} appears twice, with a hyphen and with an underscore")
        below = f"{where}.{key}" if where else key
        found = _keys(table).get(key)
        result[key] = _value(value, found and found.type, key, below, problems)
    return result


def _value(value: Any, hint: Any, key: str, where: str, problems: list[str]) -> Any:  # noqa: ANN401
    if hint is GuardTable and value == _INJECT:
        return {"inject": True}
    if codec.is_value(hint) and isinstance(value, dict):
        return _by_key(value, hint, where, problems)
    item = _item(hint)
    if isinstance(value, str) and item is str:
        return [part.strip() for part in value.split(",") if part.strip()] if key in _LISTS else [value]
    if isinstance(value, list | tuple):
        rows = codec.is_value(item)
        return [
            _by_key(each, item, f"{where}[{index}]", problems) if rows and isinstance(each, dict) else each
            for index, each in enumerate(value)
        ]
    return value


def _item(hint: Any) -> Any:  # noqa: ANN401
    """The type of what is in a `tuple[X, ...]`, also where it may be None."""
    choices = [hint, *typing.get_args(hint)]
    found = (typing.get_args(each)[0] for each in choices if typing.get_origin(each) is tuple)
    return next(found, None)


def _key(written: str, keys: Mapping[str, object]) -> str:
    """The key as the table has it; an unknown one is reported as it was written."""
    key = written.replace("_", "-").removesuffix("-")
    return key if key in keys else written


def schema() -> dict[str, Any]:
    """The JSON Schema of a cuwheel.toml, for editors; of pyproject.toml it is `tool.cuwheel`."""
    made = codec.schema(Table)
    for table in made["$defs"].values():
        table["properties"] = {key: _lenient(each) for key, each in table["properties"].items()}
        table["additionalProperties"] = False
        table.pop("required", None)
        if guard := table["properties"].get("guard"):
            table["properties"]["guard"] = {"anyOf": [guard, {"const": _INJECT}]}
    return made


def _lenient(schema: dict[str, Any]) -> dict[str, Any]:
    """Where a list of texts is taken, a single text is too. TOML has no null."""
    if "anyOf" in schema:
        rest = [each for each in schema["anyOf"] if each != {"type": "null"}]
        kept = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
        schema = kept | (rest[0] if len(rest) == 1 else {"anyOf": rest})
    if schema.get("type") == "array" and schema.get("items") == {"type": "string"}:
        default = {"default": schema["default"]} if "default" in schema else {}
        return {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}], **default}
    return schema


def machine_names(table: Table, configuration: Path | None, folder: Path) -> list[str]:
    """What `for` names. A fleet file is named from where the configuration is, as every file in one is."""
    near = configuration.parent if configuration else folder
    return [str(near / name) if (near / name).is_file() and not Path(name).is_file() else name for name in table.for_]
