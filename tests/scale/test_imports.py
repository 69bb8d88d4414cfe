"""Imports of 100,000 pictures take minutes, and as much memory as those of 10,000."""

from __future__ import annotations

import pytest

from tests.scale.imports import SOURCES, measure

pytestmark = [pytest.mark.slow, pytest.mark.timing]

_MIB = 32  # names as hashes, names in one folder; a picture more than that is held is 200 MiB


@pytest.mark.parametrize("kind", SOURCES)
def test_many_pictures_are_imported_in_minutes_in_the_memory_of_few(tmp_path, kind):
    few, many = (
        measure(kind, pictures, tmp_path / str(pictures)) for pictures in (10_000, 100_000)
    )
    assert many["seconds"] < 300, many
    assert many["peak_mib"] < few["peak_mib"] + _MIB, (few, many)
