"""Blocks of a data set that take part less are drawn less, and an audit sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.accounting.renyi_filter import NOTHING
from dpal.audit.check_poisson_sampling import inclusion_findings
from dpal.ledger.data_set_accounts import Basis, BlockShare
from dpal.planning.campaign_plan import Plan
from dpal.randomness import secure
from dpal.training.poisson_batches import PoissonBatches
from tests.audit.auditing import small_plan

DRAWS = 1 << 19


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Everyone of block 1, a third of the usual rates for block 0."""
    shares = tuple(
        BlockShare(block=block, size=300, participation=factor, basis=Basis.RENYI, amount=NOTHING,
                   epsilon=1.0)
        for block, factor in ((0, 1 / 3), (1, 1.0))
    )  # fmt: skip
    fresh = small_plan()
    return replace(fresh, spec=replace(fresh.spec, blocks=shares))


def test_sound_code_passes(plan):
    """Four checks at false-alarm rates far below 1e-4 each."""
    assert all(one.passed for one in inclusion_findings(plan, draws=DRAWS, rng=secure()))


def test_participation_that_is_ignored_is_found(plan, monkeypatch):
    honest = vars(PoissonBatches)["of_part"].__func__

    def forgetful(cls, part, phase, cohorts, participation=None):
        return honest(cls, part, phase, cohorts)

    monkeypatch.setattr(PoissonBatches, "of_part", classmethod(forgetful))
    found = inclusion_findings(plan, draws=DRAWS, rng=secure())
    assert next(one.what for one in found if not one.passed).startswith("sample rate / planned")
