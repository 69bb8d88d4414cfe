"""What a vote between sites costs, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.capc.batch_costs import batch_event, bytes_of_batch, bytes_passed_on, epsilon_of_batches
from dpal.capc.terms import GUARDIAN, QUERIER, Terms, VoteMode
from dpal.planning.release_list import CertifiedList
from dpal.reports.report import Table

COUNTS = "noisy counts"

_MEGABYTE = 1e6


def sites_vote_facts(certified: CertifiedList, terms: Terms) -> dict[str, Any]:
    """The plan as one JSON object; the contract of `dpal capc plan --json`."""
    sites = len(terms.sites)
    asked = sorted({0, sites // 5, sites // 2, terms.colluding})
    costs = {number: epsilon_of_batches(terms, colluding=number) for number in asked}
    return {
        **certified.summary(),
        "charged_as": batch_event(terms).mechanism,
        "released": COUNTS if terms.tells_counts else "answers",
        "mode": str(terms.mode),
        "noise_of_a_count": (terms.charged_sigma**2 / 2) ** 0.5,
        "queries": terms.queries * terms.batches,
        "least_live": terms.least_live,
        "noise_of_a_site": terms.share_variance**0.5 / terms.rule.parts,
        "epsilon_by_colluding": {
            str(number): epsilon for number, epsilon in costs.items() if epsilon is not None
        },
        "bytes_of_a_batch": {
            party: {"receives": received, "sends": sent}
            for party, (received, sent) in bytes_of_batch(terms).items()
        },
        "bytes_passed_on": bytes_passed_on(terms),
    }


def sites_vote_tables(facts: Mapping[str, Any]) -> list[Table]:
    """The same in tables."""
    terms = facts["settings"]["terms"]
    shared = facts["mode"] == VoteMode.SHARES
    rows = [
        ("sites", f"{len(terms['sites'])}, of which {facts['least_live']} must be there"),
        ("queries", f"{facts['queries']:,} in {terms['batches']:,} batches"),
        ("promise", f"epsilon {facts['target_epsilon']:g} at delta {facts['delta']:g}"),
        ("cost of all batches", f"{facts['epsilon']:.4f} ({facts['accountant']})"),
        ("mechanism", terms.get("mechanism", "binary")),
        ("mode", facts["mode"]),
        *((("evaluating models", "apart, before: dpal capc cnn"),) if shared else ()),
        ("released", facts["released"]),
        ("noise on a count", f"{facts['noise_of_a_count']:.3f} votes"),
        ("noise of each site", f"{facts['noise_of_a_site']:.3f} votes"),
    ]
    strict = facts["mode"] == VoteMode.STRICT
    colluding = [
        (number, f"{epsilon:.4f}", facts["released"] if number == "0" and not strict else COUNTS)
        for number, epsilon in facts["epsilon_by_colluding"].items()
    ]
    who = "the guardian and who asks" if strict else "who asks"
    names = {QUERIER: "who asks", GUARDIAN: "guardian", "site": "each site"}
    traffic = [
        (
            names[party],
            f"{both['receives'] / _MEGABYTE:.2f} MB",
            f"{both['sends'] / _MEGABYTE:.2f} MB",
        )
        for party, both in facts["bytes_of_a_batch"].items()
    ]
    passed_on = f"{facts['bytes_passed_on'] / _MEGABYTE:.2f} MB"
    traffic.append(("guardian, for others", passed_on, passed_on))
    return [
        Table("What is asked, and what it costs every record", ("what", "value"), tuple(rows)),
        Table(
            f"If so many sites collude with {who}, at the noise that sites draw",
            ("colluding sites", "epsilon", "what they see"),
            tuple(colluding),
        ),
        Table("What a batch sends", ("party", "receives", "sends"), tuple(traffic)),
    ]


def site_account_table(site: str, facts: Mapping[str, Any]) -> Table:
    """A site's own account, as `SiteAccount.spent` has it."""
    promised = f"of {facts['promised']:g} at delta {facts['delta']:g}"
    rows = [
        ("batches voted in", f"{facts['batches']:,} of {facts['batches_that_may_be_asked']:,}"),
        ("epsilon of these, as the guardian charges", f"{facts['epsilon']:.4f} {promised}"),
    ]
    if facts["votes"] > facts["batches"]:
        rows += [
            ("votes, with those in batches that were begun again", f"{facts['votes']:,}"),
            ("epsilon if each of them told something", f"{facts['epsilon_of_all_votes']:.4f}"),
        ]
    return Table(f"What {site} has voted in, by its own account", ("what", "value"), tuple(rows))
