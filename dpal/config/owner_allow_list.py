"""What the owner of the data allows to runs that come from Prefect: read, compared, written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain, combinations, count
from pathlib import Path
from typing import Any

import yaml

from dpal.config.guarded_settings import Guarded, GuardedSetting
from dpal.config.yaml_loader import read_yaml
from dpal.errors import AllowListError
from dpal.files.canonical_places import NO_PLACE, canonical_place, is_resolved, lies_in

WORKDIR = "workdir"  # folders in which a worker may let a deployment's runs work

TOGETHER = "together"  # in the file: what holds only together
EARLIER = "earlier"  # the group that a list becomes which had none

_HEADER = """\
# What runs from Prefect (its page, its schedules, its API) may use on this machine. Only its
# owner writes this file. Settings have their dotted names. A place is a path from the root or a
# URL and means just that; with a slash at its end it means everything below as well.
# Below `together` stand groups: a run may use what one group lists, and what stands outside of
# them all, and never some of one group and some of another.
# What is not here is refused. `dpal run FILE` in a terminal is not limited by it.
"""

Values = Mapping[str, tuple[object, ...]]


@dataclass(frozen=True)
class AllowList:
    """The owner's list.

    Attributes:
      values: what each setting may be in any run, by its dotted name.
      together: groups by name: what settings may be besides, as far as a run fits one group. So
        what is said of one file, such as that it is public, does not hold for those of another.
    """

    values: Values = field(default_factory=dict)
    together: Mapping[str, Values] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is allowed."""
        return not self.values and not self.together

    def allows(self, setting: GuardedSetting) -> bool:
        """Whether some run may use a setting's value."""
        return not self.refused([setting])

    def refused(self, settings: Iterable[GuardedSetting]) -> list[GuardedSetting]:
        """The settings that a run may not use; of the group that it fits best."""
        return self.nearest(settings)[1]

    def nearest(self, settings: Iterable[GuardedSetting]) -> tuple[str, list[GuardedSetting]]:
        """The group that a run fits best ("" where there are none), and what it lacks there."""
        wanted = list(settings)
        groups = self.together or {"": {}}
        found = {
            name: [one for one in wanted if not _allows(_merged(self.values, group), one)]
            for name, group in groups.items()
        }
        best = min(found, key=lambda name: len(found[name]))
        return best, found[best]

    def extended(self, settings: Iterable[GuardedSetting], *, name: str) -> AllowList:
        """The list with a group for these settings, unless they fit one that is there.

        What it allows stays allowed, and nothing is added to a group that is there: what was said
        of other files would hold for these, too. What stands outside of all groups and was not
        allowed together with others becomes a group before the first other one.

        Args:
          settings: of one run.
          name: of the group; with a number behind it where another has that name.
        """
        wanted = list(settings)
        if not self.refused(wanted):
            return self
        groups, values = dict(self.together), self.values
        if not groups and values:
            groups[EARLIER] = {key: listed for key, listed in values.items() if key != WORKDIR}
            values = {key: listed for key, listed in values.items() if key == WORKDIR}
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        free = next(one for one in names if one not in groups)
        used: dict[str, dict[object, None]] = {}
        for one in wanted:
            if one.value not in one.mark.free and not _allows(values, one):
                used.setdefault(one.key, {})[listed_value(one)] = None
        added = {key: tuple(listed) for key, listed in used.items()}
        return AllowList(values, {**groups, free: added})

    def left_open(self, settings: Iterable[GuardedSetting]) -> list[str]:
        """Names of settings that a run like this may leave out, by another group than its own.

        Alone, or with others: of a pool that one group allows with data set and ledger, another
        may allow both to be left out, and neither of them.

        Args:
          settings: of a run that is allowed, of which some are not the usual ones.
        """
        wanted = list(settings)
        named = [one for one in wanted if one.mark.usual and one.value not in one.mark.usual]
        left: dict[str, None] = {}
        for size in range(1, len(named) + 1):
            for together in combinations(named, size):
                without = [
                    replace(each, value=each.mark.usual[0]) if each in together else each
                    for each in wanted
                ]
                if not self.refused(without):
                    left.update(dict.fromkeys(one.key for one in together))
        return list(left)

    def lines(self) -> Iterator[tuple[str, str, object]]:
        """Every entry: the group that it stands in, or "", its setting, and its value."""
        for group, values in (("", self.values), *sorted(self.together.items())):
            for key, listed in sorted(values.items()):
                yield from ((group, key, entry) for entry in listed)

    def as_text(self) -> str:
        """The list as its file."""
        plain: dict[str, Any] = _plain(self.values)
        if self.together:
            plain[TOGETHER] = {name: _plain(values) for name, values in self.together.items()}
        return _HEADER + (yaml.safe_dump(plain, sort_keys=True) if plain else "{}\n")


def _plain(values: Values) -> dict[str, list[object]]:
    return {key: list(listed) for key, listed in values.items()}


def _merged(first: Values, second: Values) -> Values:
    both = {key: (*first.get(key, ()), *listed) for key, listed in second.items()}
    return {**first, **both}


def _allows(values: Values, setting: GuardedSetting) -> bool:
    if setting.value in setting.mark.free:
        return True
    listed = values.get(setting.key)
    if listed is None:
        return setting.value in setting.mark.usual
    if setting.value is None or not setting.mark.place:
        return setting.value in listed
    try:
        place = _place_of(setting.value)
    except NO_PLACE:
        return False
    return any(_covers(str(entry), place) for entry in listed if entry is not None)


def _place_of(value: object) -> str:
    return canonical_place(value if isinstance(value, Path) else str(value))


def listed_value(setting: GuardedSetting) -> Any:
    """A setting's value as it stands in a list.

    >>> from dpal.config.guarded_settings import Guarded
    >>> listed_value(GuardedSetting("runtime.store", "S3://bucket/dpal", Guarded()))
    's3://bucket/dpal'
    >>> listed_value(GuardedSetting("data.pool", "/srv/clinic/", Guarded()))
    '/srv/clinic/'
    """
    if setting.value is None or isinstance(setting.value, bool):
        return setting.value
    text = str(setting.value)
    if not setting.mark.place:
        return text
    try:
        place = _place_of(setting.value)
    except NO_PLACE:
        return text
    return place + ("/" if text.endswith("/") and is_resolved(place) else "")


def parse_allow_list(text: str, place: Path) -> AllowList:
    """Reads a list.

    Args:
      text: of the file.
      place: of the file, for messages.

    Raises:
      AllowListError: it is no list of settings and values.
    """
    try:
        parsed = read_yaml(text)
    except yaml.YAMLError as error:
        raise AllowListError(str(place), "is not readable YAML") from error
    parsed = {} if parsed is None else parsed
    if not isinstance(parsed, dict):
        raise AllowListError(str(place), "holds no settings, such as data.pool: [/srv/a.parquet]")
    groups = parsed.pop(TOGETHER, {})
    if not isinstance(groups, dict) or not all(isinstance(one, dict) for one in groups.values()):
        raise AllowListError(str(place), f"has no groups of settings under {TOGETHER}")
    return AllowList(
        _values_in(parsed, place),
        {str(name): _values_in(group, place) for name, group in groups.items()},
    )


def _values_in(parsed: Mapping[object, object], place: Path) -> Values:
    values = {
        str(key): tuple(value) if isinstance(value, list) else (value,)
        for key, value in parsed.items()
    }
    for key, listed in values.items():
        if odd := [entry for entry in listed if not isinstance(entry, str | bool | None)]:
            raise AllowListError(str(place), f"has {odd[0]!r} under {key}, which is no text")
    return values


def mistakes(allowed: AllowList, marks: Mapping[str, Guarded]) -> list[str]:
    """What stands in a list and allows nothing: unknown settings, and relative paths.

    Args:
      allowed: the list.
      marks: all guarded settings, with their marks.
    """
    problems = []
    for group, key, entry in allowed.lines():
        where = f"{TOGETHER}.{group}.{key}" if group else key
        if key not in marks:
            near = get_close_matches(key, marks, n=1)
            problems.append(f"{where} is no guarded setting" + (f", {near[0]} is" if near else ""))
        elif marks[key].place and isinstance(entry, str) and not _is_absolute(entry):
            problems.append(f"{where}: {entry} is neither a path from the root nor a URL")
    return list(dict.fromkeys(problems))


def _is_absolute(value: str) -> bool:
    return value.startswith(("/", "~/")) or "://" in value


def _at_home(listed: str) -> str:
    """A listed place with the home folder of whoever reads the list; only at its beginning."""
    return str(Path.home()) + listed[1:] if listed.startswith("~/") else listed


def _covers(listed: str, place: str) -> bool:
    """Whether a listed place is the place, or is written as a folder and holds it."""
    if listed == place or not _is_absolute(listed):
        return listed == place
    try:  # the owner's own `~` is that of this list
        allowed = canonical_place(_at_home(listed))
    except NO_PLACE:
        return False
    if not listed.endswith("/"):
        return place == allowed
    # Of what could not be resolved nobody knows where it lies.
    return is_resolved(place) and lies_in(place, allowed)
