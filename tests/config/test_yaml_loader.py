"""What a person writes is what dpal reads."""

from __future__ import annotations

import pytest

from dpal.config.yaml_loader import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2:8", "2:8"),  # 128 in YAML 1.1
        ("1:30:0.5", "1:30:0.5"),
        ("010", 10),
        ("1e-5", 1e-5),  # a text in YAML 1.1
        ("-3", -3),
        (".5", 0.5),
        ("8.", 8.0),
        ("[40, 40]", [40, 40]),
        ("null", None),
        ("true", True),
        ("1_000", "1_000"),
    ],
)
def test_numbers_are_decimal(text, value):
    found = read_yaml(text)
    assert found == value
    assert type(found) is type(value)
