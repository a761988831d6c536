"""A wheel that a build backend made, given its name, its description and its guard: beside it, then renamed."""

from __future__ import annotations

import io
import os
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cuwheel import locking as lock
from cuwheel.errors import MalformedError, UsageError
from cuwheel.files import errors_of, sync_folder
from cuwheel.inspection import description
from cuwheel.inspection.description import Description
from cuwheel.stamping import guard, guard_call, retag
from cuwheel.stamping.guard import Wish as GuardWish
from cuwheel.wheel import headers, member_hashes, metadata, record
from cuwheel.wheel.zip_reader import ZipReader
from cuwheel.wheel.zip_writer import Traits, ZipWriter, data_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from cuwheel.wheel.record import Digest

_LABEL = re.compile(r"cu\d+", re.ASCII)
_SUFFIX = re.compile(r"[-_.]cu\d+$", re.ASCII | re.IGNORECASE)
_PARTS, _PARTS_WITH_BUILD = 5, 6
_INFO, _DATA = ".dist-info", ".data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """`name`, `version`, `python_tag` (`py3-none`): in place of the wheel's own. `extra_requires`: to add."""

    name: str | None = None
    version: str | None = None
    python_tag: str | None = None
    description: Description
    guard: GuardWish | None = None
    extra_requires: tuple[str, ...] = ()


def local_version(version: str, cuda: str) -> str:
    """`1.2` → `1.2+cu130`; `1.2+ubuntu.1` → `1.2+ubuntu.1.cu130`; another CUDA's label gives way to this one."""
    label = "cu" + "".join(cuda.split(".")[:2])
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is no version that can be labelled: {error}", hint="see PEP 440") from error
    before = parsed.local.split(".") if parsed.local else []
    kept = [each for each in before if not _LABEL.fullmatch(each)]
    return f"{parsed.public}+{'.'.join([*kept, label])}"


def suffixed_name(name: str, cuda: str) -> str:
    """`name-cu13`: for the public index, which takes no local versions. A suffix that is there is replaced."""
    return f"{_SUFFIX.sub('', name)}-cu{cuda.split('.', maxsplit=1)[0]}"


def stamp(wheel: Path, to: Path, wish: Wish) -> Path:
    """The new wheel, in the folder `to`."""
    old = ZipReader(wheel)
    try:
        must_be_sound(wheel, old)
        if wish.python_tag:
            retag.must_fit(old.members, wish.python_tag)
        renaming = _renaming(wheel, old, wish)
        output = to / renaming.file_name
        with errors_of(output, f"{output} was not written"), lock.scratch(to) as folder:
            made = folder / "wheel"
            _write(wheel, old, made, renaming, wish)
            _check(made, renaming)
            made.replace(output)
            sync_folder(to)
    finally:
        old.close()
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Renaming:
    """`info` and `new_info` end in a slash. Import names stay what they are."""

    file_name: str
    old_name: str
    name: str
    version: str
    info: str
    new_info: str

    def of(self, member: str) -> str:
        """The member's name in the new wheel. Installers take every `*.data` folder at the top for the wheel's."""
        top, slash, rest = member.partition("/")
        if member.startswith(self.info):
            return self.new_info + member.removeprefix(self.info)
        return self.new_info.removesuffix(f"{_INFO}/") + _DATA + "/" + rest if slash and top.endswith(_DATA) else member


def must_be_sound(wheel: Path, reader: ZipReader) -> None:
    """What is stamped is going to be published."""
    if problems := list(_problems(wheel, reader)):
        raise MalformedError(wheel, f"not stamped: {'; '.join(problems)}", hint="build the wheel again")


def _problems(wheel: Path, reader: ZipReader) -> Iterator[str]:
    if len(wheel.name.removesuffix(".whl").split("-")) not in (_PARTS, _PARTS_WITH_BUILD):
        yield "its file name is not that of a wheel"
    yield from (each.message for each in reader.findings[:3])
    infos = dist_infos(reader)
    if len(infos) != 1:
        yield f"it has {len(infos) or 'no'} dist-info {'folder' if len(infos) == 1 else 'folders'}"
        return
    missing = [each for each in ("METADATA", "WHEEL", "RECORD") if f"{infos[0]}/{each}" not in reader.members]
    if missing:
        yield f"it has no {', '.join(missing)}"
        return
    if signed := [each for each in record.SIGNATURES if f"{infos[0]}/{each}" in reader.members]:
        yield f"it is signed ({', '.join(signed)}), and a changed wheel would not bear the signature out"
    if wrong := sorted(_unlisted(reader, infos[0])):
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""  # noqa: PLR2004 - a few say enough
        yield f"its RECORD and its files do not agree on {', '.join(wrong[:3])}{more}"
    if damaged := member_hashes.wrong(wheel, f"{infos[0]}/"):
        yield f"these files are not what RECORD says of them: {', '.join(damaged[:3])}"
    said = metadata.from_texts(reader.text(f"{infos[0]}/METADATA") or "", "")
    if not said.name or not said.version:
        yield "its METADATA has no name or no version"


def dist_infos(reader: ZipReader) -> list[str]:
    tops = dict.fromkeys(each.partition("/")[0] for each in reader.members if "/" in each)
    return [each for each in tops if each.endswith(_INFO)]


def _unlisted(reader: ZipReader, info: str) -> set[str]:
    return set(metadata.recorded_files(reader.text(f"{info}/RECORD") or "")) ^ set(reader.members)


def _renaming(wheel: Path, old: ZipReader, wish: Wish) -> _Renaming:
    info = dist_infos(old)[0]
    said = metadata.from_texts(old.text(f"{info}/METADATA") or "", "")
    first, second, *rest = wheel.name.removesuffix(".whl").split("-")
    written = info.removesuffix(_INFO)
    inside_name, _, inside_version = written.rpartition("-")
    if wish.name:
        first = inside_name = canonicalize_name(wish.name).replace("-", "_")
    if wish.version:
        second = inside_version = _checked(wish.version).replace("-", "_")
    file_name = "-".join([first, second, *rest]) + ".whl"
    return _Renaming(
        file_name=retag.file_name(file_name, wish.python_tag) if wish.python_tag else file_name,
        old_name=said.name,
        name=wish.name or said.name,
        version=wish.version or said.version,
        info=f"{info}/",
        new_info=f"{inside_name}-{inside_version}{_INFO}/",
    )


def _checked(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is no version: {error}", hint="such as 1.2+cu130") from error


def _write(wheel: Path, old: ZipReader, made: Path, renaming: _Renaming, wish: Wish) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    try:
        with zipfile.ZipFile(wheel) as archive, made.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            _Copier(archive, old, ZipWriter(file, pool), renaming).copy(wish)
            file.flush()
            os.fsync(file.fileno())
    except zipfile.BadZipFile as error:
        raise MalformedError(wheel, f"not stamped: {error}", hint="build the wheel again") from error


class _Copier:
    """Every member in its order and as it is compressed; what is new comes before RECORD, which is the last."""

    def __init__(self, archive: zipfile.ZipFile, old: ZipReader, writer: ZipWriter, renaming: _Renaming) -> None:
        self._archive, self._old, self._writer, self._renaming = archive, old, writer, renaming
        self._digests: dict[str, Digest] = {}

    def copy(self, wish: Wish) -> None:
        renaming, infos = self._renaming, self._archive.infolist()
        told, listed, described = (renaming.info + each for each in ("METADATA", "RECORD", description.NAME))
        text = headers.changed(
            self._archive.read(told),
            name=(renaming.old_name, renaming.name) if wish.name else None,
            version=wish.version,
            requires=wish.extra_requires,
        )
        new = {described: description.encoded(wish.description), **self._guards(wish)}
        if wish.python_tag:
            tagged = renaming.info + "WHEEL"
            new[tagged] = retag.wheel_file(self._archive.read(tagged), wish.python_tag)
        for info in infos:
            if info.filename == told:
                self._add(info, text)
            elif info.filename != listed and info.filename not in new:
                self._keep(info)
        by_name = {info.filename: info for info in infos}
        for name, data in new.items():
            self._add(by_name[told], data, name)
        self._add(by_name[listed], self._record(by_name, new), listed)
        self._writer.finish()

    def _record(self, infos: dict[str, zipfile.ZipInfo], new: dict[str, bytes]) -> bytes:
        """Rows of what is replaced go, and come again with the new ones."""
        name = self._renaming.info + "RECORD"
        added = {self._renaming.of(each): self._digests.pop(each) for each in new}
        text = record.changed(
            self._archive.read(name).decode("utf-8", "surrogateescape"),
            self._digests,
            removed=new,
            added=added,
            renamed={each: self._renaming.of(each) for each in infos},
        )
        return text.encode("utf-8", "surrogateescape")

    def _guards(self, wish: Wish) -> dict[str, bytes]:
        """The guard beside the `__init__.py` of its package, wherever the wheel has that; its call in it."""
        if wish.guard is None:
            return {}
        folder = package_folder(self._old.members, wish.guard.package)
        made = {f"{folder}{guard.FILE}": guard.source(wish.guard).encode()}
        if wish.guard.inject:
            init = f"{folder}__init__.py"
            made[init] = guard_call.with_call(self._archive.read(init), init)
        return made

    def _keep(self, info: zipfile.ZipInfo) -> None:
        source = self._old.source
        self._writer.copy(Traits.of(info, self._renaming.of(info.filename)), info, source, data_offset(source, info))

    def _add(self, like: zipfile.ZipInfo, data: bytes, name: str | None = None) -> None:
        name = name or like.filename
        self._digests[name] = record.digest_of_bytes(data)
        self._writer.add(Traits.of(like, self._renaming.of(name)), io.BytesIO(data), len(data))


def package_folder(names: Collection[str], package: str) -> str:
    """Where the package's files are in the wheel, with a slash at the end."""
    wanted = package.replace(".", "/")
    for name in names:
        folder, _, file = name.rpartition("/")
        if file == "__init__.py" and import_path(folder) == wanted:
            return f"{folder}/"
    tops = ", ".join(packages(names)) or "none"
    raise UsageError(
        f"[tool.cuwheel.guard] package = {package!r}: the wheel has no such package", hint=f"its packages: {tops}"
    )


def packages(names: Collection[str]) -> list[str]:
    """Those at the top of a wheel, as they are imported."""
    there = {import_path(each.rpartition("/")[0]) for each in names if each.endswith("/__init__.py")}
    return sorted(each for each in there if each and "/" not in each)


def import_path(folder: str) -> str:
    """`foo-1.0.data/platlib/foo` is installed as `foo`."""
    top, _, rest = folder.partition("/")
    scheme, _, path = rest.partition("/")
    return path if top.endswith(_DATA) and scheme in ("platlib", "purelib") else folder


def _check(made: Path, renaming: _Renaming) -> None:
    """What was written must read as a wheel whose RECORD lists what is in it."""
    reader = ZipReader(made)
    try:
        wrong = _unlisted(reader, renaming.new_info.rstrip("/"))
        if wrong or reader.findings:
            told = ", ".join([*sorted(wrong), *(each.message for each in reader.findings)][:5])
            raise MalformedError(made, f"RECORD and the files do not agree: {told}", hint="a bug: report it")
    finally:
        reader.close()
