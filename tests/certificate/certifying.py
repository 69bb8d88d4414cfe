"""A small campaign's ledger, and its certificate, made without training anything."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from dpal.accounting.events import Release
from dpal.canonical import canonical_json, plain
from dpal.certificate.check_outcome import Check, CheckOutcome
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.campaign import CAMPAIGN
from dpal.certificate.make_campaign_certificate import certificate_of
from dpal.certificate.read_and_seal import (
    entry_digest,
    read_certificate,
    sealed_certificate,
    to_text,
)
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.certify_campaign import certified_plan
from tests.conftest import CLASSES, WIDTH, small_spec

SALT, POOL = b"s" * 32, b"the pool's bytes"


def plan_of(mode: str, **changes: Any) -> Plan:
    """Hidden and visible selection need larger queries than the others; chance draws openly."""
    privacy = {"selection": mode, "secret_draw": False}
    return _planned(
        small_spec(strategy="naive", privacy=privacy, schedule__queries=[200, 200], **changes)
    )


@cache
def _planned(spec: CampaignSpec) -> Plan:
    return certified_plan(spec).plan


def with_delta(delta: float, spec: CampaignSpec) -> CampaignSpec:
    """Any delta, also one that settings of the standard profile may not have."""
    return replace(spec, target=replace(spec.target, delta=delta))


def opened(place: Path) -> LedgerStore:
    """The ledger of a folder, with the anchors of whoever keeps it."""
    return LedgerStore(place / "ledger.sqlite", anchors=place / "anchors")


def write_model(path: Path, name: str) -> None:
    """Weights of logistic regression on the small records, others for every name."""
    drawn = np.random.default_rng(list(name.encode())).normal(size=(CLASSES, WIDTH + 1))
    values = drawn.astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"1.weight": values[:, 1:].copy(), "1.bias": values[:, 0].copy()}, path)


def run(
    place: Path,
    plan: Plan,
    *,
    campaign: str = "small",
    releases: Sequence[Release] | None = None,
    stop_after: int | None = None,
    end: bool = True,
    data: DataHold | None = None,
) -> tuple[Path, list[Entry]]:
    """Holds, reserves, commits and ends; returns the ledger's file and all its entries."""
    folder, file = place / campaign, place / "ledger.sqlite"
    made = list(plan.releases()) if releases is None else releases
    commitment = hashlib.sha256(SALT + hashlib.sha256(POOL).hexdigest().encode()).hexdigest()
    store = opened(place)
    with lock_folder(folder):
        ledger = CampaignLedger(store, campaign, folder)
        ledger.hold(plan.spec.target, plan.digest, commitment, made, data=data)
        for release in made[:stop_after]:
            phase = folder / f"phase-{release.phase}"
            path = phase / ("selection.parquet" if release.selects else "model.safetensors")

            def draw(path: Path = path, name: str = release.name) -> None:
                if path.suffix == ".safetensors":
                    write_model(path, f"{campaign}/{name}")
                    return
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"drawn for {name}")

            ledger.release_once(release, draw, inputs=[], artifacts=[path])
        if end:
            ledger.end()
    entries = store.entries()
    store.close()
    return file, entries


def certified(entries: list[Entry], plan: Plan, campaign: str = "small") -> dict[str, Any]:
    """The certificate, once through text."""
    written = certificate_of(entries, campaign, plain(plan), versions={"dpal": "0"})
    return read_certificate(to_text(written))


def asserted(entries: list[Entry], plan: Plan, campaign: str = "small") -> dict[str, Any]:
    """The same by somebody who certifies whatever it cost."""
    content = CAMPAIGN.derive(evidence_in(entries, campaign, plain(plan)))
    return read_certificate(to_text(sealed_certificate({**content, "versions": {"dpal": "0"}})))


def failures(checks: Iterable[Check]) -> dict[str, str]:
    return {one.name: one.detail for one in checks if one.outcome is CheckOutcome.FAILED}


def outcome(checks: Iterable[Check], name: str) -> CheckOutcome:
    return next(one for one in checks if one.name == name).outcome


def changed(
    document: dict[str, Any], *path: Any, to: Any = None, drop: bool = False, seal: bool = True
) -> dict[str, Any]:
    """A certificate with one thing changed, under a digest that fits again."""
    copied = copy.deepcopy(document)
    place: Any = copied
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to(place[path[-1]]) if callable(to) else to
    return sealed_certificate(copied) if seal else copied


def forged(
    entries: Sequence[Entry], change: Callable[[Entry, dict[str, Any]], object]
) -> list[Entry]:
    """Entries with something changed in their bodies, and a chain that fits again."""
    before = {entry.digest: entry.digest for entry in entries}
    made: list[Entry] = []
    for entry in entries:
        body = json.loads(canonical_json(entry.body))
        change(entry, body)
        previous = before.get(entry.previous, entry.previous)
        again = replace(entry, body=body, previous=previous)
        again = replace(again, digest=entry_digest(again))
        before[entry.digest] = again.digest
        made.append(again)
    return made
