"""Writes what a version leaves on a disk: a ledger, certificates, artifacts, and what they cost.

    python -m tests.compatibility.make tests/compatibility/VERSION

Run once for a version, before it is left behind; what it wrote is committed and never written anew.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dpal.accounting import second_opinion
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.accounting.events import Charge, Release, from_record
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.canonical import canonical_json, digest
from dpal.certificate.dsse import as_pem
from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.data.labeling_state import write_labels, write_merged, write_selection, write_start
from dpal.data.sources import Role, open_source
from dpal.ledger.campaign_account import campaign_account, campaigns_in
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.signing_key import SigningKey
from dpal.privacy import Adjacency, PrivacyTarget
from tests.certificate.certifying import certified, plan_of, run
from tests.certificate.kinds import MAKERS
from tests.conftest import write_blobs
from tests.ledger.releasing import draw
from tests.ledger.telling import tell

TRAINING = {"mechanism": "poisson_subsampled_gaussian"}
RECORDS: list[dict[str, Any]] = [
    {**TRAINING, "steps": 200, "sample_rate": 0.05, "noise_multiplier": 1.2},
    {"mechanism": "laplace", "epsilon": 0.25},
    {"mechanism": "noisy_threshold", "noise_multiplier": 10.0, "overflow": 1e-8},
    {"mechanism": "anchored_answers", "above": 0.4, "below": 0.05, "blank": 0.15},
    {"mechanism": "noisy_moments", "noise_multiplier": 9.25},
    {"mechanism": "noisy_counts", "epsilon": 0.25, "moved": 2},
    {"mechanism": "noisy_votes", "queries": 20, "squared_sensitivity": 2.0, "sigma": 40.0},
    {"mechanism": "noisy_majorities", "answers": 40, "teachers": 50, "sigma": 40.0,
     "threshold": 35.0, "threshold_sigma": 15.0},
    {"mechanism": "votes_within", "order": 3.5, "divergence": 1.5, "failure": 1e-9},
]  # fmt: skip
EVERY_EVENT = "every-event"
DELTA = 1e-5
LABELS = {"r-00001": 0, "r-00003": 1}


def releases_of_every_event() -> list[Release]:
    """A history in which every kind of event stands, each as records would meet it."""
    (training, scores, threshold, answers, moments, counts, *votes) = map(from_record, RECORDS)
    pooled = ("1", "2", "never_selected")

    def release(
        name: str, kind: str, phase: int, cohorts: tuple[str, ...], *events: Any
    ) -> Release:
        charges = tuple(Charge(cohorts=cohorts, event=event) for event in events)
        return Release(name=name, kind=kind, phase=phase, charges=charges)

    return [
        release("phase-0/training", "training", 0, ("0",), training),
        release("phase-1/selection", "selection", 1, pooled, scores),
        release("phase-1/training", "training", 1, ("0", "1"), training),
        release("phase-2/selection", "selection", 2, pooled[1:], threshold, answers),
        release("near-private/components", "guidance", 2, ("0", *pooled), moments),
        release("near-private/support", "guidance", 2, ("0", *pooled), counts),
        *(release(f"votes/{i}", "voting", 2, ("0",), vote) for i, vote in enumerate(votes, 1)),
    ]


def costs_of_event(record: dict[str, Any]) -> dict[str, Any]:
    """What one event costs by each accountant, and the digest of its value in a plan."""
    event = from_record(record)
    found: dict[str, Any] = {"record": record, "digest": digest(event)}
    releases = [
        Release(name="a", kind="training", phase=0, charges=(Charge(cohorts=("0",), event=event),))
    ]
    for adjacency in Adjacency:
        if record["mechanism"] == "anchored_answers":
            continue  # charged by the path that it leads to
        target = PrivacyTarget(epsilon=8.0, delta=DELTA, adjacency=adjacency)
        curve = np.asarray(event.renyi(adjacency))
        found[adjacency.value] = {
            "renyi": [float(one) if np.isfinite(one) else None for one in curve[::16]],
            "pld": campaign_epsilon(releases, target),
            "rdp": campaign_epsilon(releases, target, accountant=Accountant.RDP),
            "dp_accounting": second_opinion.epsilon_by_pld(
                [event], delta=DELTA, adjacency=adjacency
            ),
        }
    return found


def costs_of_ledger(store: LedgerStore) -> dict[str, Any]:
    """What the campaigns of a ledger have spent, and what is left of its data sets."""
    entries, found = store.verified(), {}
    for name in campaigns_in(entries):
        account = campaign_account(entries, name)
        found[name] = {
            "epsilon": account.epsilon,
            "cohorts": [asdict(cohort) for cohort in account.cohorts],
            "releases": [digest(release) for release in account.planned],
        }
    owned = data_set(entries, "clinic")
    left = [asdict(block.left(owned.limit)) for block in owned.blocks]
    return {"campaigns": found, "left": left, "head": entries[-1].digest}


def filter_charges(releases: list[Release]) -> dict[str, Any]:
    """What a data set's filter charges, in whole units."""
    limit = RenyiFilter.fitted(30.0, DELTA)
    return {adjacency.value: asdict(limit.charge(releases, adjacency)) for adjacency in Adjacency}


def _hold_every_event(root: Path) -> None:
    target = PrivacyTarget(epsilon=60.0, delta=DELTA)
    with closing(LedgerStore(root / "ledger.sqlite")) as store, lock_folder(root / EVERY_EVENT):
        ledger = CampaignLedger(store, EVERY_EVENT, root / EVERY_EVENT)
        releases = releases_of_every_event()
        ledger.hold(target, "0" * 64, "1" * 64, releases)
        for release in releases:
            draw(ledger, release)


def _write_certificates(out: Path, root: Path) -> None:
    out.mkdir()
    plan = plan_of("visible")
    _, entries = run(root, plan)
    model = root / "small" / "phase-2" / "model.safetensors"
    found: dict[str, tuple[dict[str, Any], list[Entry], Path | None, SigningKey]]
    found = {"campaign": (certified(entries, plan), entries, model, SigningKey(root / "anchors"))}
    for name, make in MAKERS.items():
        made = make(root / f"kind-{name}")
        found[name] = (made.document, list(made.entries), made.model, made.signer)
    for name, (document, known, weights, signer) in found.items():
        key = signer.public_key()
        signature = sign_statement(certificate_statement(document, key), signer)
        (out / f"{name}.json").write_text(canonical_json(document) + "\n")
        (out / f"{name}.dsse.json").write_text(signature)
        (out / f"{name}.pem").write_text(as_pem(key))
        lines = [canonical_json(vars(entry) | {"kind": entry.kind.value}) for entry in known]
        (out / f"{name}.ledger.jsonl").write_text("".join(f"{line}\n" for line in lines))
        if weights is not None:
            shutil.copy(weights, out / f"{name}.safetensors")


def _write_artifacts(out: Path, root: Path) -> None:
    """The Parquet files of one phase: who is asked, what was answered, how the pool stands."""
    out.mkdir()
    source = open_source(write_blobs(root / "pool.parquet", 8, seed=1, prefix="r"), Role.POOL,
                         label_column="label")  # fmt: skip
    write_start(source, root / "start.parquet")
    write_selection(source, np.array([1, 3]), np.array([6]), out / "selection.parquet")
    write_labels(LABELS, out / "labels.parquet")
    write_merged(root / "start.parquet", LABELS, 0, out / "pool.parquet",
                 retired=["r-00006"])  # fmt: skip


def main(out: Path) -> None:
    """Writes all of it into a new folder."""
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        tell(root / "told")
        _hold_every_event(root / "told")
        with closing(LedgerStore(root / "told" / "ledger.sqlite", create=False)) as store:
            assert {entry.kind for entry in store.entries()} == set(EntryKind)
            costs = {
                "events": [costs_of_event(record) for record in RECORDS],
                "charges": filter_charges(releases_of_every_event()[:6]),
                "ledger": costs_of_ledger(store),
            }
        (out / "costs.json").write_text(json.dumps(costs, indent=1) + "\n")
        shutil.copy(root / "told" / "ledger.sqlite", out / "ledger.sqlite")
        _write_certificates(out / "certificates", root / "certified")
        _write_artifacts(out / "artifacts", root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
