"""What is attacked is what was run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import dpal
from dpal.audit.audit_campaign_plan import Effort
from dpal.errors import ParameterError
from dpal.runs.audit_run import found_in_ledger, require_held_plan
from dpal.runs.kinds import kind_of
from dpal.runs.run import Run
from tests.conftest import small_values


def planned(values: Mapping[str, Any]) -> Run[Any]:
    config = dpal.settings(dict(values))
    run: Run[Any] = kind_of(config).use_cases().plan(config)
    return run


@pytest.mark.usefixtures("workplace")
def test_a_sound_run_is_no_defect_beside_other_settings() -> None:
    values = small_values(schedule__queries=[])
    require_held_plan(planned(values))  # nothing was run yet
    dpal.run(dpal.settings(values))
    require_held_plan(planned(values))
    assert all(finding.passed for finding in found_in_ledger(planned(values)))
    others = planned(small_values(schedule__queries=[], privacy__epsilon=4.0))
    assert not all(finding.passed for finding in found_in_ledger(others)), "as if it had differed"
    with pytest.raises(ParameterError):
        kind_of(others.config).use_cases().audit(others, Effort())
