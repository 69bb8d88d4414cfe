"""What `dpal ledger` shows and checks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dpal.accounting.cohorts import campaign_epsilon, spending
from dpal.artifacts import CampaignFolder
from dpal.canonical import file_digest
from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Kind
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.store import LedgerStore
from dpal.reports.summary import Table


def as_object(folder: CampaignFolder) -> dict[str, Any]:
    """A campaign's ledger as one object: promise, cohorts, releases, head.

    Epsilons are added up from the reserved events, not copied from the plan.
    """
    store = LedgerStore(folder.ledger, create=False)
    try:
        ledger = CampaignLedger(store, folder.name, folder.root)
        verify_chain(store.entries())
        entries, target, releases = ledger.entries(), ledger.target(), ledger.spent()
        accountant = ledger.accountant()
    finally:
        store.close()
    cohorts = [one["cohort"] for one in folder.read_record()["plan"]["cohorts"]]
    names = [*(str(cohort) for cohort in cohorts), "never_selected"]
    done = {entry.release: entry.kind.value for entry in entries if entry.kind is not Kind.RESERVE}
    return {
        "name": folder.name,
        "target_epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": accountant.value,
        "campaign_epsilon": campaign_epsilon(releases, target, accountant=accountant),
        "cohorts": [asdict(spending(name, releases, target)) for name in names],
        "releases": [
            {
                "sequence": entry.sequence,
                "release": entry.release,
                "kind": entry.body["kind"],
                "state": done.get(entry.release, "reserve"),
                "recorded_at": entry.recorded_at,
                "charges": entry.body["charges"],
            }
            for entry in entries
            if entry.kind is Kind.RESERVE
        ],
        "head": {"sequence": entries[-1].sequence, "digest": entries[-1].digest},
    }


def releases_table(view: dict[str, Any]) -> Table:
    """Every release, with its mechanism and whom it charges."""
    states = {"reserve": "reserved", "commit": "committed", "forfeit": "forfeited"}
    rows = []
    for release in view["releases"]:
        for charge in release["charges"]:
            parameters = dict(charge["event"])
            mechanism = parameters.pop("mechanism").replace("_", " ")
            rows.append(
                (
                    str(release["sequence"]),
                    release["release"],
                    states[release["state"]],
                    ", ".join(charge["cohorts"]).replace("_", " "),
                    mechanism,
                    # In words that a narrow terminal can put below each other.
                    ", ".join(
                        f"{key.replace('_', ' ')} {value:.6g}" for key, value in parameters.items()
                    ),
                )
            )
    columns = ("entry", "release", "state", "cohorts", "mechanism", "parameters")
    return Table("Releases", columns, tuple(rows))


def verify(folder: CampaignFolder) -> tuple[int, str]:
    """Checks the file, the chain, that finished phases saw it, and committed files.

    Returns:
      The number of entries and the head's digest.

    Raises:
      LedgerTampered: names the first bad entry.
    """
    store = LedgerStore(folder.ledger, create=False)
    try:
        entries = store.entries()
        head = verify_chain(entries)
        store.require_sound_file()
    finally:
        store.close()
    known = {entry.sequence: entry.digest for entry in entries}
    for phase in range(len(folder.finished_phases())):
        seen = folder.phase(phase).ledger_head()
        if known.get(seen["sequence"]) != seen["digest"]:
            raise LedgerTampered(
                seen["sequence"], f"phase {phase} was finished on another entry of this number"
            )
    for entry in entries:
        if entry.campaign == folder.name and entry.kind is Kind.COMMIT:
            for name, digest in entry.body["artifacts"].items():
                path = folder.root / name
                if path.exists() and file_digest(path) != digest:
                    raise LedgerTampered(entry.sequence, f"{path} is not the file it committed")
    return len(entries), head
