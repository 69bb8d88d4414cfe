"""Verifying the certificate of an improved model: the start's, its own entries, the total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpal.accounting.agreement import tolerance
from dpal.accounting.before import Before, declared_of
from dpal.accounting.cohorts import Accountant
from dpal.accounting.events import GUIDANCE, Charge, NoisyCounts, NoisyMoments, Release
from dpal.canonical import digest
from dpal.certificate import voting
from dpal.certificate.checks import (
    MALFORMED,
    Check,
    Outcome,
    judged,
    refuted,
    unchecked,
    unreadable,
)
from dpal.certificate.compare import Difference, Place, Room, compared
from dpal.certificate.data_set import check_shares, check_together
from dpal.certificate.document import same
from dpal.certificate.figures import SAME_ENGINE
from dpal.certificate.improvement import KIND, Parts, derived
from dpal.certificate.inside import check_entries, check_releases, check_seal
from dpal.certificate.outside import Model, Pool, check_ledger, check_model
from dpal.certificate.promise import CAMPAIGN, check_promise, pool_size_of
from dpal.certificate.sources import sources_from
from dpal.certificate.verify import verify
from dpal.certificate.verify_voting import verify_voting
from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry
from dpal.ledger.holding import before_from, before_record
from dpal.ledger.releases import release_record
from dpal.privacy import Adjacency, PrivacyTarget, Unit


def verify_any(
    document: Mapping[str, Any],
    *,
    ledger: Sequence[Entry] | None = None,
    model: Model | None = None,
    pool: Pool | None = None,
    no_pool: str = "no pool given (--data)",
) -> list[Check]:
    """Checks a certificate of a campaign, of teachers, or of an improvement with its start's."""
    if document.get("kind") == voting.KIND:
        return verify_voting(document, ledger=ledger, model=model)
    if document.get("kind") != KIND:
        return verify(document, ledger=ledger, model=model, pool=pool, no_pool=no_pool)
    seal = check_seal(document)
    try:
        parts = _parts(document)
        checks = _start_checks(parts, ledger)
        checks += _own_checks(document, parts, ledger)
        if refuted(checks):
            return [seal, *checks, unchecked("epsilon", "the parts are not sound")]
        follows = derived(parts, document["format"])
        apart = tolerance((*parts.before.releases, *parts.releases), parts.promise)
        found, figures = compared(document, follows, _room_for_figures(apart))
        checks.append(
            judged(
                "statements",
                (one.says for one in found),
                f"{follows['method']}, {follows['labels']:,} labels; {follows['noise_chosen']}",
            )
        )
        checks += _figure_checks(follows, parts, figures, apart)
        if parts.sources is not None and parts.sources.hold.body.get("data") is not None:
            checks += [check_shares(parts.sources), check_together(parts.sources, ledger)]
        checks.append(check_model({**follows, "digest": document.get("digest")}, model))
    except MALFORMED as error:
        return [seal, unreadable("improvement", error)]
    return [seal, *checks]


def _parts(document: Mapping[str, Any]) -> Parts:
    promise, start = document["promise"], document["start"]
    return Parts(
        name=str(document["campaign"]),
        promise=PrivacyTarget(
            epsilon=promise["epsilon"],
            delta=promise["delta"],
            adjacency=Adjacency(promise["adjacency"]),
            unit=Unit(promise["unit"]),
        ),
        accountant=Accountant(promise["accountant"]),
        start=start["certificate"],
        declared=declared_of(start["declared"]),
        start_model=str(start["model"]),
        sources=sources_from(document) if document["ledger"]["entries"] else None,
        plan=document["plan"]["content"],
        model={key: str(document["model"][key]) for key in ("file", "sha256")},
    )


def _start_checks(parts: Parts, ledger: Sequence[Entry] | None) -> list[Check]:
    """All checks of the start's own certificate."""
    if parts.start is not None and parts.declared is not None:
        detail = "a certificate and a declared cost of the start exclude each other"
        return [Check(name="start", outcome=Outcome.FAILED, detail=detail)]
    if parts.start is None:
        if parts.declared is None:
            detail = "neither a certificate nor a declared cost of the start is here"
            return [Check(name="start", outcome=Outcome.FAILED, detail=detail)]
        told = (
            f"epsilon {parts.declared.epsilon:g} at delta {parts.declared.delta:.4g} is declared, "
            "and cannot be checked"
        )
        return [unchecked("start", told)]
    checks = verify(
        parts.start,
        ledger=ledger,
        model=Model(sha256=parts.start_model),
        no_pool="dpal verify the start's own certificate with --data",
    )
    return [Check(name=f"start: {one.name}", outcome=one.outcome, detail=one.detail)
            for one in checks]  # fmt: skip


def _own_checks(
    document: Mapping[str, Any], parts: Parts, ledger: Sequence[Entry] | None
) -> list[Check]:
    """Checks of the entries beyond the start, or that there are none."""
    sources = parts.sources
    if sources is None:
        checks = [judged("releases", _free_faults(parts, ledger), "none beyond the start")]
    else:
        checks = [
            check_entries(sources, document["ledger"]),
            check_releases(sources),
            check_ledger(sources, ledger),
        ]
    fine = f"digest {digest(parts.plan)[:12]}, its promise and its noise are what is charged"
    return [*checks, judged("plan", _plan_faults(document, parts), fine)]


def _free_faults(parts: Parts, ledger: Sequence[Entry] | None) -> Iterator[str]:
    if ledger is not None:
        try:
            verify_chain(ledger)
        except LedgerTampered as error:
            yield str(error)
    if parts.plan["spec"]["guidance"] is not None:
        yield "the plan releases something about private records, and no entry charges it"
    for entry in ledger or ():
        if entry.campaign == parts.name:
            yield f"entry {entry.sequence} of the ledger is not covered by the certificate"
            return


def _plan_faults(document: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    spec, sources = parts.plan["spec"], parts.sources
    promised = {key: document["promise"][key] for key in ("epsilon", "delta", "adjacency", "unit")}
    if not same(spec["target"], promised):
        yield "the plan was made for another promise"
    if not same(spec["accountant"], parts.accountant.value):
        yield "the plan was made for another accountant"
    if not same(spec["name"], document["campaign"]):
        yield "the plan is one of another improvement"
    if spec["start_model"] not in (None, parts.start_model):
        yield "the plan improves other weights than the certificate says"
    adjacency = {parts.promise.adjacency.value}
    if parts.start is not None:
        adjacency.add(parts.start["promise"]["adjacency"])
        if parts.start["promise"]["unit"] != parts.promise.unit.value:
            yield "the start protects another unit"
    if len(adjacency) != 1:
        yield "the start was certified under another adjacency"
    if sources is None:
        return
    held = sources.hold.body
    if sources.hold.campaign != parts.name:
        yield "another improvement was held"
    if digest(parts.plan) != held["plan"]:
        yield "the plan is not the one whose digest was held"
    if not same({key: held[key] for key in promised}, promised):
        yield "another promise was held"
    if not same(held["accountant"], parts.accountant.value):
        yield "another accountant was held"
    if before_from(held.get("before")) is None:
        yield "the hold does not say what was spent before"
    elif not _covers(before_from(held["before"]), parts.before):
        yield "the hold counts another history of the start than its certificate"
    before = before_from(held["before"]) or parts.before
    charged = [release_record(one) for one in parts.releases]
    if not same(charged, [release_record(one) for one in _planned(spec["guidance"], before)]):
        yield "the charges are not those of the plan, for everybody whom it reads"
    alone = spec["guidance"]["voters"] == "threshold" and spec["target"]["adjacency"] == "zero_out"
    if spec["guidance"]["support"]["moved"] != (1 if alone else 2):
        yield "the votes are charged for fewer counts than one record can move"


def _planned(guidance: Mapping[str, Any], before: Before) -> Iterator[Release]:
    """What a plan releases: both about everybody whom the start knew, in its last phase."""
    events: dict[str, NoisyMoments | NoisyCounts] = {
        "near-private/components": NoisyMoments(**guidance["components"]),
        "near-private/support": NoisyCounts(**guidance["support"]),
    }
    for name, event in events.items():
        charges = (Charge(cohorts=before.cohorts, event=event),)
        yield Release(name=name, kind=GUIDANCE, phase=before.last_phase, charges=charges)


def _covers(held: Before | None, certified: Before) -> bool:
    """Whether a hold counted all that the start's certificate lists, but for later attempts."""
    if held is None or held.campaign != certified.campaign or held.declared != certified.declared:
        return False
    known = [before_record(Before(releases=(one,))) for one in held.releases]
    names = {one.name for one in held.releases}
    return all(
        before_record(Before(releases=(one,))) in known
        for one in certified.releases
        if one.name in names
    ) and names <= {one.name for one in certified.releases}


def _room_for_figures(apart: float) -> Room:
    """Where figures stand; another version of dp-accounting may overstate more or less."""

    def room(place: Place) -> float | None:
        if place[:-1] in (("epsilon",), ("start", "epsilon")):
            return apart if place[-1] == "dp_accounting" else SAME_ENGINE
        return None

    return room


def _figure_checks(
    follows: Mapping[str, Any], parts: Parts, found: Sequence[Difference], apart: float
) -> list[Check]:
    costs = follows["epsilon"]
    return [
        judged(
            "epsilon, start and all",
            (one.says for one in found),
            f"{costs['pld']:.4f} by PLD, {costs['rdp']:.4f} by RDP, {costs['dp_accounting']:.4f} "
            f"by dp-accounting; the start alone {follows['start']['epsilon']['pld']:.4f} by PLD",
        ),
        check_promise(
            costs,
            parts.promise,
            parts.accountant,
            CAMPAIGN,
            second={"dp_accounting": apart},
            pool_size=pool_size_of(follows),
        ),
    ]
