"""The labelers that settings can name, in the order in which forms show them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeVar

from dpal.errors import ConfigError, ParameterError


class Named(Protocol):
    """What settings ask of the labeler that they name; `dpal.runs.labelers` says all of it."""

    @property
    def name(self) -> str:
        """As settings say it."""

    @property
    def about(self) -> str:
        """What it is, in a few words, for forms."""

    @property
    def most_records(self) -> int | None:
        """Records that one query may have; None for any number."""

    @property
    def needs_teachers(self) -> bool:
        """Whether settings name finished private voting for it, which pays by query."""

    def require_settings(self, settings: Any, /) -> None:
        """Requires that the labeler's section of the settings has what it needs.

        Raises:
          ValueError: it has not.
        """


L = TypeVar("L", bound=Named)

# Each labeler, or the module that registers it. Settings are checked before anything else is
# imported, so that such a module is imported when its labeler is first asked for.
LABELERS: dict[str, str | Named] = {
    "oracle": "dpal.runs.labelers.oracle",
    "file": "dpal.runs.labelers.file",
    "label_studio": "dpal.runs.labelers.label_studio",
    "form": "dpal.runs.labelers.form",
    "teachers": "dpal.runs.labelers.teachers",
}


def register_labeler(labeler: type[L]) -> type[L]:
    """Makes a labeler one that settings can name.

    Raises:
      ParameterError: another labeler has its name.
    """
    made = labeler()
    registered = LABELERS.setdefault(made.name, made)
    if registered == labeler.__module__:
        LABELERS[made.name] = made
    elif registered is not made:
        raise ParameterError(f"labeler.kind {made.name} names another labeler")
    return labeler


def labeler_named(name: str) -> Named:
    """The labeler of a name.

    Raises:
      ConfigError: there is none.
    """
    if name not in LABELERS:
        raise ConfigError(f"labeler.kind cannot be {name!r}; choose one of {', '.join(LABELERS)}")
    registered = LABELERS[name]
    if isinstance(registered, str):
        import_module(registered)
        registered = LABELERS[name]
    if isinstance(registered, str):
        raise ParameterError(f"{registered} registers no labeler of the name {name}")
    return registered


def explained() -> str:
    """What each labeler is, in one paragraph."""
    return " ".join(f"{name}: {labeler_named(name).about}." for name in LABELERS)
