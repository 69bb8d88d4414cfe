"""What is attacked is what was run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import dpal
from dpal.audit.audit_campaign_plan import Effort
from dpal.errors import ParameterError
from dpal.runs.audit_run import found_in_ledger, require_held_plan
from dpal.runs.kinds import KINDS
from dpal.runs.run import Run
from tests.conftest import small_values

CAMPAIGNS = KINDS["campaign"].use_cases()


def planned(values: Mapping[str, Any]) -> Run[Any]:
    run: Run[Any] = CAMPAIGNS.plan(dpal.settings(dict(values)))
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
        CAMPAIGNS.audit(others, Effort())
