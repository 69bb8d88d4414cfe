"""What is read of an annotation beside its answer."""

from __future__ import annotations

import math

import pytest

from dpal.labeling.label_studio_project import _seconds


@pytest.mark.parametrize(("lead_time", "seconds"), [(7.25, 7.25), (3, 3.0)])
def test_how_long_an_annotation_took(lead_time, seconds):
    assert _seconds(lead_time) == seconds


@pytest.mark.parametrize("lead_time", [None, 0, -4.0, math.nan, math.inf, 10**400, "7", True, [7]])
def test_what_is_no_time_is_not_known(lead_time):
    assert _seconds(lead_time) is None
