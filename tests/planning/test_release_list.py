"""Lists of releases: what is certified, and what no certificate could state."""

from __future__ import annotations

import pytest

from dpal.accounting.events import (
    VOTING,
    Charge,
    Event,
    Release,
    SkellamCounts,
    SkellamMajorities,
    SkellamScaledCounts,
)
from dpal.errors import PlanRejected
from dpal.planning.release_list import CertifiedList, ListedPlan, ListedSpec, certify_list
from dpal.privacy import Accountant, PrivacyTarget
from tests.conftest import nothing_released

SCALED = SkellamScaledCounts(queries=1, entries=(16, 11, 9), parts=16, sigma=20.0)
EVENTS = [
    SkellamCounts(answers=3, sigma=20.0),
    SkellamMajorities(answers=3, sigma=20.0),
    SCALED,
]


def certified(event: Event, delta: float) -> CertifiedList:
    accountant = Accountant.RDP if event.renyi_is_tighter else Accountant.PLD
    target = PrivacyTarget(epsilon=2.0, delta=delta)
    charge = Charge(cohorts=("0",), event=event)
    release = Release(name="votes/1", kind=VOTING, phase=0, charges=(charge,))
    spec = ListedSpec(name="sites", target=target, accountant=accountant)
    return certify_list(ListedPlan.of(spec, [release]))


@pytest.mark.parametrize("event", EVENTS)
def test_what_both_accountants_add_up_is_certified(event):
    found = certified(event, 1e-8)
    assert 0 < found.epsilon <= 2
    assert 0 < found.epsilon_oracle < 2


@pytest.mark.parametrize("event", EVENTS)
def test_what_no_certificate_could_state_is_refused_before_it_is_held(event):
    """Labels left, and then the certificate had no finite epsilon."""
    with pytest.raises(PlanRejected, check=nothing_released):
        certified(event, 1e-15)
