"""Settings that name something registered: checked, and offered by forms, as it stands then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, core_schema


@dataclass(frozen=True, kw_only=True)
class Registered:
    """Marks a text as one of the names that are registered when it is checked.

    Attributes:
      names: in the order in which forms show them.
      title: of the choice among the definitions of a JSON schema; None writes it into the field.
      about: what the choice is, for its definition.
      explained: what the names mean; None leaves it to the field's own docstring.
    """

    names: Callable[[], Sequence[str]]
    title: str | None = None
    about: str = ""
    explained: Callable[[], str] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Refuses what is not registered, as pydantic does with an enumeration."""
        return core_schema.no_info_before_validator_function(
            self._require_known, core_schema.str_schema(), ref=self.title
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The names as an enumeration."""
        field = handler(schema)
        choice = handler.resolve_ref_schema(field)
        choice["enum"] = list(self.names())
        if self.title is not None:
            choice |= {"title": self.title, "description": self.about}
        if self.explained is not None:
            field["description"] = self.explained()
        return field

    def _require_known(self, value: Any) -> str:
        names = self.names()
        if not isinstance(value, str) or value not in names:
            *others, last = (repr(name) for name in names)
            raise PydanticKnownError("enum", {"expected": f"{', '.join(others)} or {last}"})
        return value
