"""Plans of versions that counted nothing for records that coins put aside: the limit stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpal.errors import BudgetExceeded
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.certify_campaign import certified_plan
from tests.conftest import having, small_spec
from tests.ledger.releasing import draw, hold


def test_a_campaign_under_way_with_too_little_noise_is_refused_its_last_phase(
    tmp_path: Path,
) -> None:
    plan = certified_plan(
        small_spec(
            pool_size=4_000,
            privacy={
                "selection": "hidden",
                "epsilon": 3.0,
                "secret_draw": True,
                "candidates": 400,
            },
            acquisition="margin",
            strategy="naive",
            schedule={
                "initial": 200,
                "queries": [60],
                "batch_size": 100,
                "epochs_per_phase": 4,
            },
            self_training={"epochs": 2},
        )
    ).plan
    last = plan.phases[-1]
    training = replace(last.training, noise_multiplier=0.8 * last.training.noise_multiplier)
    earlier = replace(plan, phases=(*plan.phases[:-1], replace(last, training=training)))
    ledger = CampaignLedger(LedgerStore(tmp_path / "ledger.sqlite"), "small", tmp_path / "small")
    with lock_folder(tmp_path / "small"):
        hold(ledger, earlier)
        *before, unlabeled = earlier.releases()
        for release in before:
            draw(ledger, release)
        with pytest.raises(BudgetExceeded, check=having(released=False)):
            draw(ledger, unlabeled)
