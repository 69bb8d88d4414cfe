"""The base of all settings: where a field's title and description come from, and named bounds.

A field's docstring is its description in JSON schemas, and thus in forms; a title that is not
given is the field's name in words.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler

NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"  # of folders, ledger entries and data sets

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
# Of teachers on the side of the majority: of queries on average, and of one query.
MeanAgreement = Annotated[float, Field(gt=0.5, lt=1)]
AgreementShare = Annotated[float, Field(ge=0.5, le=1)]
Name = Annotated[str, Field(pattern=NAME)]


class Section(BaseModel):
    """Part of a configuration; knows all of its keys and does not change."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # a command that reads no settings need not wait for all validators
        field_title_generator=lambda name, _: name.replace("_", " ").capitalize(),
    )
    # The class whose source has the docstrings, for one that is derived from it.
    described_in: ClassVar[type[BaseModel] | None] = None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for base in (cls.described_in or cls).__mro__:
            if issubclass(base, Section):
                for name, text in _docstrings(base.__module__).get(base.__name__, {}).items():
                    if name in fields:
                        fields[name].setdefault("description", text)
        return schema


# pydantic's use_attribute_docstrings reads the source when a class is made: at every start of
# every command, 85 ms in all, and it keeps line breaks.
@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """What stands under the fields of a module's classes, by class and field.

    Where only bytecode is installed there is nothing to read, and forms show titles alone; what
    is valid is the same. In a zip file its importer has the source.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # TypeError: typed into a session
        return {}
    return {
        section.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in pairwise(section.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for section in ast.walk(tree)
        if isinstance(section, ast.ClassDef)
    }
