"""YAML as people mean it: 2:8 is a text and not 128, as it is in YAML 1.1 (base 60)."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Numbers of YAML 1.2's core schema."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in (_INT, _FLOAT)]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


_Loader.add_constructor(_INT, lambda _, node: int(node.value))


def read_yaml(text: str) -> Any:
    """Reads a document.

    Raises:
      yaml.YAMLError: it is none; or holds numbers of thousands of digits, lists within lists
        without end, or characters that cannot be written down.
    """
    try:
        values = yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader
        # Half of a pair of surrogates ("\\ud800") is no character: no file could hold it.
        json.dumps(values, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error
    return values
