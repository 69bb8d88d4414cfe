"""Campaigns whose model is trained in parts, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.config.runtime import ModelLayout
from dpal.errors import ConfigError
from dpal.ledger.attempt_checkpoints import ReservedSteps
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.training.distributed.sharded_checkpoints import LeadingState
from dpal.training.distributed.worker_pool import WorkerPool
from tests.conftest import small_values

pytestmark = pytest.mark.usefixtures("workplace")

SHARDED = {
    "runtime__processes": 2,
    "runtime__model_layout": "sharded",
    "runtime__checkpoint_steps": 2,
}


def sharded_values(**changes: Any) -> dict[str, Any]:
    return small_values(**{"schedule__queries": [40], **SHARDED, **changes})


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["sharded", "replicated"])
def test_a_campaign_goes_on_in_any_layout_and_its_certificate_holds(monkeypatch, then):
    """It ends after its first checkpoint; no step of that is made again."""
    persist, shard = ReservedSteps.persist, WorkerPool.shard
    sharded: list[int] = []

    def counted(*arguments: Any, **options: Any) -> LeadingState:
        sharded.append(options["steps"])
        return shard(*arguments, **options)

    monkeypatch.setattr(WorkerPool, "shard", counted)

    def persist_and_die(steps: ReservedSteps, *arguments: Any) -> None:
        persist(steps, *arguments)
        raise Killed

    config = parse_config(sharded_values(acquisition="committee", training__optimizer="adam"))
    with monkeypatch.context() as dying:
        dying.setattr(ReservedSteps, "persist", persist_and_die)
        with pytest.raises(Killed):
            dpal.run(config)
    layout = {"runtime__model_layout": then}
    if then == "replicated":
        layout = {"runtime__processes": 1, **layout}
    changed = {"acquisition": "committee", "training__optimizer": "adam", **layout}
    folder = dpal.run(parse_config(sharded_values(**changed)))
    assert len(folder.finished_phases()) == 2
    assert len(sharded) == (3 if then == "sharded" else 1)  # the phase that ended early, twice
    ledger = Path("artifacts/ledger.sqlite")
    checks = dpal.verify(folder, ledger=ledger, model=folder.phase(1).model)
    assert not any_failed(checks)
    entries = LedgerStore(ledger, create=False).entries()
    persisted = [
        (entry.release.partition("@")[0], entry.body["steps"])
        for entry in entries
        if entry.kind is EntryKind.CHECKPOINT
    ]
    assert persisted == sorted(set(persisted)) and len(persisted) > 2


@pytest.mark.parametrize(
    "changes",
    [
        {"runtime__processes": 1},
        {"runtime__rendezvous": "127.0.0.1:29400", "runtime__helpers": 1},
        {"runtime__backend": "functional"},
        {"runtime__checkpoint_steps": None},
    ],
    ids=["one process", "machines", "backend", "timed"],
)
def test_settings_that_a_sharded_model_cannot_have_are_refused(changes):
    parse_config(sharded_values())
    with pytest.raises(ConfigError, match=r"runtime\.model_layout"):
        parse_config(sharded_values(**changes))


def test_a_campaign_is_replicated_unless_it_says_so():
    assert parse_config(small_values()).runtime.model_layout is ModelLayout.REPLICATED
