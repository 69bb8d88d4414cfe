"""What the owner of the data allows to runs that come from Prefect: read, compared, written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from dpal.config.guarded import Guarded, GuardedSetting
from dpal.errors import AllowListError
from dpal.files.urls import canonical_place, lies_in

WORKDIR = "workdir"  # folders in which a worker may let a deployment's runs work

_HEADER = """\
# What runs from Prefect (its page, its schedules, its API) may use on this machine. Only its
# owner writes this file. Settings have their dotted names. A place is a path from the root or a
# URL and means just that; with a slash at its end it means everything below as well.
# What is not here is refused. `dpal run FILE` in a terminal is not limited by it.
"""


@dataclass(frozen=True)
class AllowList:
    """The owner's list.

    Attributes:
      values: what each setting may be, by its dotted name.
    """

    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def allows(self, setting: GuardedSetting) -> bool:
        """Whether a run may use a setting's value."""
        if setting.value in setting.mark.free:
            return True
        listed = self.values.get(setting.key)
        if listed is None:
            return setting.value in setting.mark.usual
        if setting.value is None or not setting.mark.place:
            return setting.value in listed
        place = canonical_place(str(setting.value))
        return any(_covers(str(entry), place) for entry in listed if entry is not None)

    def refused(self, settings: Iterable[GuardedSetting]) -> list[GuardedSetting]:
        """The settings that a run may not use."""
        return [setting for setting in settings if not self.allows(setting)]

    def extended(self, settings: Iterable[GuardedSetting]) -> AllowList:
        """The list with what these settings need in addition; what it allows stays allowed.

        A list that was empty allows just these settings: where one of them has a value that is
        not the usual one, the usual one is closed.
        """
        values = dict(self.values)
        used: dict[str, list[GuardedSetting]] = {}
        for setting in settings:
            if setting.value not in setting.mark.free:
                used.setdefault(setting.key, []).append(setting)
        for key, wanted in used.items():
            missing = [listed_value(setting) for setting in wanted if not self.allows(setting)]
            if missing:
                kept = self.values.get(key, wanted[0].mark.usual if self.values else ())
                others = [listed_value(setting) for setting in wanted if key not in self.values]
                values[key] = tuple(dict.fromkeys([*kept, *others, *missing]))
        return AllowList(values)

    def as_text(self) -> str:
        """The list as its file."""
        plain = {key: list(listed) for key, listed in sorted(self.values.items())}
        return _HEADER + (yaml.safe_dump(plain, sort_keys=True) if plain else "{}\n")


def listed_value(setting: GuardedSetting) -> Any:
    """A setting's value as it stands in a list.

    >>> from dpal.config.guarded import Guarded
    >>> listed_value(GuardedSetting("runtime.store", "s3://bucket/a/../dpal", Guarded()))
    's3://bucket/dpal'
    >>> listed_value(GuardedSetting("data.pool", "/srv/clinic/", Guarded()))
    '/srv/clinic/'
    """
    if setting.value is None or isinstance(setting.value, bool):
        return setting.value
    text = str(setting.value)
    if not setting.mark.place:
        return text
    return canonical_place(text) + ("/" if text.endswith("/") else "")


def parse_allow_list(text: str, place: Path) -> AllowList:
    """Reads a list.

    Args:
      text: of the file.
      place: of the file, for messages.

    Raises:
      AllowListError: it is no list of settings and values.
    """
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AllowListError(str(place), "is not readable YAML") from error
    parsed = {} if parsed is None else parsed
    if not isinstance(parsed, dict):
        raise AllowListError(str(place), "holds no settings, such as data.pool: [/srv/a.parquet]")
    values = {
        str(key): tuple(value) if isinstance(value, list) else (value,)
        for key, value in parsed.items()
    }
    for key, listed in values.items():
        if odd := [entry for entry in listed if not isinstance(entry, str | bool | None)]:
            raise AllowListError(str(place), f"has {odd[0]!r} under {key}, which is no text")
    return AllowList(values)


def mistakes(allowed: AllowList, marks: Mapping[str, Guarded]) -> list[str]:
    """What stands in a list and allows nothing: unknown settings, and relative paths.

    Args:
      allowed: the list.
      marks: all guarded settings, with their marks.
    """
    problems = []
    for key, listed in allowed.values.items():
        if key not in marks:
            near = get_close_matches(key, marks, n=1)
            problems.append(f"{key} is no guarded setting" + (f", {near[0]} is" if near else ""))
        elif marks[key].place:
            relative = [
                entry for entry in listed if isinstance(entry, str) and not _is_absolute(entry)
            ]
            problems += [
                f"{key}: {entry} is neither a path from the root nor a URL" for entry in relative
            ]
    return problems


def _is_absolute(value: str) -> bool:
    return value.startswith(("/", "~/")) or "://" in value


def _covers(listed: str, place: str) -> bool:
    """Whether a listed place is the place, or is written as a folder and holds it."""
    if listed == place or not _is_absolute(listed):
        return listed == place
    allowed = canonical_place(listed)
    return lies_in(place, allowed) if listed.endswith("/") else place == allowed
