"""The certificate of a campaign: what it cost every cohort, whatever path a record took.

No planner is asked: the plan is read as JSON, and matters only as far as the digest that was held
before the start commits to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import second_opinion
from dpal.accounting.events import (
    FIGURES,
    NEVER_SELECTED,
    TRIAL,
    VALIDATION,
    Event,
    NoisyFigures,
    NoisyStatistics,
    PhaseExposure,
    Release,
    to_record,
)
from dpal.accounting.secret_draws_amplification import (
    LEAST_ENTROPY,
    entropy_of_draw,
    exceeding_chance,
)
from dpal.accounting.validation_cohort import about_validation
from dpal.accounting.validation_count_sensitivity import MeasuredCounts
from dpal.certificate.check_outcome import Check, check_from_faults
from dpal.certificate.check_seal_and_entries import (
    check_entries,
    check_releases,
    foreign_plan_faults,
)
from dpal.certificate.compare_with_derived import Difference, Place
from dpal.certificate.evidence import LedgerEvidence, evidence_from
from dpal.certificate.fitted_head_checks import fitted_statement, unsound_fits
from dpal.certificate.hidden_selection_checks import unsound_gates
from dpal.certificate.kinds.certificate_kind import CertificateKind
from dpal.certificate.promise_checks import is_paper
from dpal.certificate.read_and_seal import is_same_json
from dpal.certificate.recomputed_epsilons import (
    SAME_ENGINE,
    cohort_by_dp_accounting,
    recompute_figures,
)
from dpal.certificate.sentences import (
    DATA_SET,
    NO_DATA_SET,
    WHO_SEES,
    statements,
    statements_about,
)
from dpal.errors import CertificateError
from dpal.labels import Task
from dpal.ledger.data_set_accounts import shares_in
from dpal.ledger.entries import Entry
from dpal.ledger.model_choice_and_stopping import is_stopped, released_index
from dpal.ledger.release_json import release_from
from dpal.privacy import Adjacency, PrivacyTarget, Unit

_MEASURED = NoisyFigures.mechanism
_FITTED = NoisyStatistics.mechanism
_OF_COHORT = ("selection_epsilon", "epsilon_rdp", "epsilon_pld")


class CampaignCertificate(CertificateKind[LedgerEvidence]):
    """Campaigns: training in phases on labels that were bought in between."""

    name = "campaign"
    can_start = True

    def read(self, document: Mapping[str, Any]) -> LedgerEvidence:
        """Reads its entries and its plan."""
        return evidence_from(document)

    def content(self, evidence: LedgerEvidence, form: int) -> dict[str, Any]:
        """Cohorts with all their events, models, who sees the selection, what is assumed."""
        held, target, plan = evidence.hold.body, evidence.target, evidence.plan
        releases, names = evidence.releases, all_cohorts_of(plan)
        figures = recompute_figures(evidence.charged, target, names)
        models, size = _models(evidence), plan["spec"]["pool_size"]
        ended = None if evidence.end is None else evidence.end.body
        return {
            "epsilon": figures.campaign,
            "selection": {"mode": evidence.mode, "seen_by": WHO_SEES[evidence.mode]},
            "pool": {"size": size, "commitment": held["pool"]},
            "data": held.get("data"),
            "other_campaigns": DATA_SET if held.get("data") else NO_DATA_SET,
            "cohorts": [
                {
                    "cohort": cohort,
                    "planned_size": planned,
                    **figures.cohorts[cohort],
                    "events": events_of(cohort, releases),
                }
                for cohort, planned in zip(names, _sizes(plan), strict=True)
            ],
            "models": models,
            "model": models[released_index(ended, len(models))],
            **statements(self.name, form, paper=is_paper(target.delta, size)),
            **statements_about(
                stopped=ended is not None and is_stopped(ended),
                secret_draws=any("draw" in phase["selection"] for phase in plan["phases"]),
                self_training=_has_trained_itself(plan, evidence.releases),
                protected_validation=plan.get("figures") is not None,
                measured_groups="groups" in plan["spec"].get("validation", {}),
                held_out="share" in plan["spec"].get("validation", {}),
                groups="groups" in plan["spec"],
                searched="search" in plan["spec"],
                fitted="head" in plan["spec"],
            ),
            **fitted_statement(plan["spec"]),
        }

    def check_evidence(
        self,
        evidence: LedgerEvidence,
        document: Mapping[str, Any],
        ledger: Sequence[Entry] | None,
    ) -> list[Check]:
        """Entries, releases, and whether what was held is all that the plan does."""
        del ledger
        entries = check_entries(evidence, document["ledger"])
        return [entries, check_releases(evidence), _check_plan(evidence)]

    def room(self, place: Place, apart: float) -> float | None:
        """Figures of the campaign and of its cohorts."""
        if place[:1] == ("epsilon",) and len(place) == 2:
            return apart if place[1] == "dp_accounting" else SAME_ENGINE
        if place[:1] == ("cohorts",) and len(place) == 3 and place[2] in _OF_COHORT:
            return SAME_ENGINE
        return None

    def check_statements(
        self, mismatches: Sequence[Difference], follows: Mapping[str, Any]
    ) -> list[Check]:
        """Events by cohort apart from everything else."""
        events = [mismatch for mismatch in mismatches if _about_events(mismatch)]
        count = sum(len(record["events"]) for record in follows["cohorts"])
        return [
            check_from_faults(
                "events by cohort",
                (_other_events(mismatch) for mismatch in events),
                f"{count} events of {len(follows['cohorts'])} cohorts, as in the entries",
            ),
            check_from_faults(
                "statements",
                (mismatch.says for mismatch in mismatches if mismatch not in events),
                "promise, who sees the selection, pool, models, assumptions, exceptions",
            ),
        ]

    def check_figures(
        self,
        document: Mapping[str, Any],
        follows: Mapping[str, Any],
        evidence: LedgerEvidence,
        mismatches: Sequence[Difference],
        apart: float,
    ) -> list[Check]:
        """The total and every cohort, by our accountants and by dp-accounting."""
        releases, target, costs = evidence.charged, evidence.target, follows["epsilon"]
        seconds = {
            record["cohort"]: cohort_by_dp_accounting(record["cohort"], releases, target)
            for record in follows["cohorts"]
        }
        return [
            check_from_faults(
                "epsilon, our accountant",
                (mismatch.says for mismatch in mismatches),
                f"{costs['pld']:.4f} by PLD, {costs['rdp']:.4f} by RDP, whatever path a record "
                "takes, as stated",
            ),
            check_from_faults(
                "epsilon, dp-accounting",
                _second_faults(document["epsilon"], costs["dp_accounting"], apart),
                f"{costs['dp_accounting']:.4f} by PLD; two programs' upper bounds may lie "
                f"{apart:.4f} apart",
            ),
            check_from_faults(
                "cohorts, dp-accounting",
                _cohort_faults(document["cohorts"], seconds, apart),
                ", ".join(f"{_spoken(cohort)}: {value:.4f}" for cohort, value in seconds.items()),
            ),
        ]


CAMPAIGN = CampaignCertificate()


def cohorts_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of all cohorts in order of entry, the never-selected last."""
    return (*(str(phase["index"]) for phase in plan["phases"]), NEVER_SELECTED)


def all_cohorts_of(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The same, and the records of a validation set that is protected."""
    measured = () if plan.get("figures") is None else (VALIDATION,)
    return (*cohorts_of(plan), *measured)


def events_of(cohort: str, releases: Sequence[Release]) -> list[dict[str, Any]]:
    """Everything that happened to a cohort, in order, with mechanism and parameters."""
    return [
        {"release": release.name, **to_record(charge.event)}
        for release in releases
        for charge in release.charges
        if cohort in charge.cohorts
    ]


def _sizes(plan: dict[str, Any]) -> list[int]:
    """Planned sizes of cohorts; how many a hidden selection found stands nowhere."""
    entered = [phase["cohort_size"] for phase in plan["phases"]]
    protected = plan["spec"].get("validation")
    measured = (
        [] if plan.get("figures") is None else [protected.get("groups") or protected["records"]]
    )
    return [*entered, plan["spec"]["pool_size"] - sum(entered), *measured]


def _has_trained_itself(plan: Mapping[str, Any], releases: Sequence[Release]) -> bool:
    """Whether the phase on pseudo-labels was run, where there is one."""
    trained = {release.phase for release in releases if release.trains}
    return any(
        phase["selection"].get("pseudo_labels", False) and phase["index"] in trained
        for phase in plan["phases"]
    )


def _models(evidence: LedgerEvidence) -> list[dict[str, str]]:
    """Every committed model: its release, its file, the digest of its weights."""
    models = [
        {"release": entry.release, "file": name, "sha256": digest}
        for entry, name, digest in evidence.models
    ]
    if not models:
        raise CertificateError("no model was committed, so there is nothing to certify yet")
    return models


def _check_plan(evidence: LedgerEvidence) -> Check:
    """Whether the plan is the one that was held, and what was held is what it does."""
    held = evidence.hold.body["plan"]
    return check_from_faults(
        "plan", _plan_faults(evidence), f"digest {held[:12]}, held before the start"
    )


def _plan_faults(evidence: LedgerEvidence) -> Iterator[str]:
    plan, held = evidence.plan, evidence.hold.body
    yield from foreign_plan_faults(evidence)
    if not is_same_json(plan["spec"].get("accountant", held["accountant"]), held["accountant"]):
        yield "the plan was made for another accountant than the one held"
    yield from _unheld_rates(plan, evidence.hold)
    yield from _unsound_carrying(plan, evidence)
    releases = [release_from(record) for record in held["releases"]]
    yield from _draw_faults(plan, releases, evidence)
    yield from unsound_gates(plan)
    yield from _unpaid_figures(plan, releases)
    yield from _dear_figures(plan, releases, evidence.target)
    yield from _unpaid_trials(plan, releases)
    yield from unsound_fits(plan)
    for phase in plan["phases"]:
        yield from _uncovered(phase, plan, releases, evidence)


def _unheld_rates(plan: Mapping[str, Any], hold: Entry) -> Iterator[str]:
    """Blocks of a data set that the plan trains on more often than was held for them, or unheld."""
    shares = {share.block: share.participation for share in shares_in(hold.body)}
    if not shares:
        return
    # As in `CampaignSpec.participation`: a plan without blocks meets all of them in full.
    trained = {share["block"]: share["participation"] for share in plan["spec"].get("blocks", ())}
    for block, rate in (trained or dict.fromkeys(shares, 1.0)).items():
        if not rate <= shares.get(block, 0.0):
            yield f"the plan trains on block {block} at higher rates than were held for it"


def _unsound_carrying(plan: Mapping[str, Any], evidence: LedgerEvidence) -> Iterator[str]:
    """Labels of an earlier campaign beside what tells who has one (`CampaignSpec`)."""
    if not plan["spec"].get("carries_labels"):
        return
    if evidence.target.adjacency is Adjacency.REPLACE_ONE:
        yield "the plan carries labels, which a record and its replacement may not both have"
    for phase in plan["phases"][1:]:
        asked = phase["selection"]
        gated = "threshold" in asked or asked.get("pseudo_labels", False)
        if plan["spec"]["selection"] == "hidden" and not gated:
            yield f"phase {phase['index']} draws from who is left after labels that are secret"


def _unpaid_figures(plan: Mapping[str, Any], held: Sequence[Release]) -> Iterator[str]:
    """Figures on protected records that the plan measures and no held release charges in full."""
    figures, protected = plan.get("figures"), plan["spec"].get("validation")
    if (figures is None) is not (protected is None):
        yield "the plan protects a validation set and measures nothing with noise, or the reverse"
        return
    if protected is None or figures is None:
        return
    if plan["spec"].get("threshold_start", "plain") != "plain":
        yield "hidden queries begin at the quantile of a validation set that is protected"
    if plan["spec"]["acquisition"] in ("class_balanced", "diverse"):
        yield "queries rank records among those of a validation set that is protected"
    if plan["spec"]["target"]["unit"] == Unit.GROUP and not protected.get("groups"):
        yield "the plan protects a validation set record by record, and promises it to groups"
    if figures.get("moved", 1) < _least_moved(plan["spec"]):
        yield "the plan's figures count on fewer counts moved by a record than it moves"
    measured = [
        *((f"phase {phase['index']}", f"phase-{phase['index']}") for phase in plan["phases"]),
        *((f"trial {number}", f"phase-0/trial-{number}") for number in _trials(plan["spec"])),
    ]
    for spoken, place in measured:
        name = f"{place}/figures"
        paid = [
            to_record(charge.event)
            for release in held
            if release.name == name and release.kind == FIGURES
            for charge in release.charges
            if charge.cohorts == (VALIDATION,)
        ]
        if not (len(paid) == 1 and is_same_json(paid[0], {**figures, "mechanism": _MEASURED})):
            yield f"{spoken} is measured on protected records and does not charge it"


def _trials(spec: Mapping[str, Any]) -> range:
    """Numbers of the trials of a search, from 1; none where there is no search."""
    search = spec.get("search")
    return range(1, 1 if search is None else 2 + len(search["others"]))


def _unpaid_trials(plan: Mapping[str, Any], held: Sequence[Release]) -> Iterator[str]:
    """Trials of a search that the plan makes and no held release charges in full."""
    trial, numbers = plan.get("trial"), _trials(plan["spec"])
    if (trial is None) is not (not numbers):
        yield "the plan searches among settings and has no trials, or the reverse"
        return
    if trial is None:
        return
    first = {**plan["phases"][0], "index": 0, "catch_up": None, "training": trial}
    like = plan["phases"][0]["training"]
    if not is_same_json({**trial, "steps": 0}, {**like, "steps": 0}):
        yield "trials train at another noise or rate than phase 0"
    for number in numbers:
        mine = _exposures(
            charge.event
            for release in held
            if release.name == f"phase-0/trial-{number}/training" and release.kind == TRIAL
            for charge in release.charges
            if charge.cohorts == ("0",)
        )
        needed = _trained(first, "0", entries_may_differ=False)
        if not (len(mine) == len(needed) == 1 and _covers(mine[0], *needed[0])):
            yield f"trial {number} trains on the initial cohort and does not charge all of it"
    if {release.name for release in held if release.kind == TRIAL} != {
        f"phase-0/trial-{number}/training" for number in numbers
    }:
        yield "trials are held that the plan does not make"


def _exposures(events: Iterable[Event]) -> list[PhaseExposure]:
    """Those that are steps of a training."""
    return [event for event in events if isinstance(event, PhaseExposure)]


def _covers(paid: PhaseExposure, steps: int, noise: float, rate: float) -> bool:
    """Whether what was charged is at least what is done."""
    return paid.steps >= steps and paid.noise_multiplier <= noise and paid.sample_rate >= rate


def _least_moved(spec: Mapping[str, Any]) -> int:
    """Counts that a validation record moves in each phase, by what the plan measures."""
    several = spec["model"]["task"] == Task.MULTI_LABEL
    counted = MeasuredCounts(
        labels=spec["model"]["classes"] if several else 1,
        auc=bool(spec["validation"].get("auc", False)),
        group_records=spec["validation"].get("group_records", 1),
    )
    return counted.squared_sensitivity(Adjacency(spec["target"]["adjacency"]))


def _dear_figures(
    plan: Mapping[str, Any], held: Sequence[Release], target: PrivacyTarget
) -> Iterator[str]:
    """Figures that cost validation records more than the plan promises them, which may be less."""
    protected, measured = plan["spec"].get("validation"), tuple(about_validation(held))
    if protected is None or not measured:
        return
    promised = replace(target, epsilon=float(protected["epsilon"]))
    if not second_opinion(measured, promised) <= promised.epsilon + tolerance(measured, promised):
        yield (
            f"figures cost validation records more than the epsilon {promised.epsilon:g} that the "
            "plan promises them"
        )


def _draw_faults(
    plan: Mapping[str, Any], held: Sequence[Release], evidence: LedgerEvidence
) -> Iterator[str]:
    """Secret draws make everything cheaper: they must be what the plan does, and nothing else."""
    planned = {
        phase["index"]: phase["selection"]["draw"]
        for phase in plan["phases"]
        if "draw" in phase["selection"]
    }
    if planned:
        yield from _unsound_draws(plan, evidence.target.adjacency)
    held_draws = set()
    for release in (*held, *evidence.releases):
        for charge in release.charges:
            if charge.event.entry_chance is None:
                continue
            held_draws.add((release.phase, release.name))
            told = _without_mechanism(to_record(charge.event))
            if not is_same_json(planned.get(release.phase), told):
                yield f"{release.name} counts a secret draw that the plan does not make"
            elif set(charge.cohorts) != set(cohorts_of(plan)[release.phase :]):
                yield f"{release.name} counts a secret draw of some records of the pool only"
    for index in planned:
        if {name for phase, name in held_draws if phase == index} != {f"phase-{index}/selection"}:
            yield f"the secret draw of phase {index} was not held, or was made more than once"


def _unsound_draws(plan: Mapping[str, Any], adjacency: Adjacency) -> Iterator[str]:
    """Secret draws that are no secret, or of other numbers than follow from what is public."""
    spec, left = plan["spec"], plan["spec"]["pool_size"]
    known = spec["selection"] != "hidden" or spec["dataset"] or spec["carries_labels"]
    known = known or spec["accountant"] != "pld" or not spec.get("secret_draw")
    gates = any("threshold" in phase["selection"] for phase in plan["phases"])
    if known or (gates and adjacency is Adjacency.REPLACE_ONE):
        yield "the plan draws by secret coins where it is known, or counted, who is labeled"
    for phase in plan["phases"]:
        if "draw" in phase["selection"]:
            draw, most = phase["selection"]["draw"], phase["selection"]["most"]
            size, pool = phase["cohort_size"], spec["pool_size"]
            if not size < left or draw["chance"] != size / left:
                yield f"phase {phase['index']} draws with another chance than its size means"
            elif most < pool and not (
                exceeding_chance(most, pool=pool, size=size) <= draw["failure_probability"]
            ):
                yield f"phase {phase['index']} draws more than it may label too often"
            elif not entropy_of_draw(pool, size) >= LEAST_ENTROPY:
                yield f"phase {phase['index']} makes a draw that its digest would tell"
            yield from _unsound_candidates(phase, spec, left=left - size)
        left -= phase["cohort_size"]


def _unsound_candidates(
    phase: Mapping[str, Any], spec: Mapping[str, Any], *, left: int
) -> Iterator[str]:
    """Candidates of queries that are no secret, or of another number than the plan's.

    Args:
      phase: that draws by secret coins.
      spec: of the campaign.
      left: records that it does not draw, on average.
    """
    told, planned = phase["selection"]["draw"].get("candidates", 1.0), spec.get("candidates")
    if planned is None or phase["index"]:
        if told != 1.0:
            yield f"phase {phase['index']} draws candidates of queries that the plan does not have"
    elif told != planned / left:
        yield f"phase {phase['index']} draws candidates with another chance than the plan means"
    elif not entropy_of_draw(left, planned) >= LEAST_ENTROPY:
        yield f"phase {phase['index']} draws candidates that its digest would tell"


def _uncovered(
    phase: Mapping[str, Any],
    plan: Mapping[str, Any],
    releases: Sequence[Release],
    evidence: LedgerEvidence,
) -> Iterator[str]:
    """What a phase does to a cohort and no held release charges."""
    index, first = phase["index"], 0 if plan["spec"]["carries_labels"] else 1
    cohorts, hidden = cohorts_of(plan), evidence.mode == "hidden"
    gates = any("threshold" in other["selection"] for other in plan["phases"])
    # Behind gates a record and its replacement may have entered in different phases, unseen.
    unseen = hidden and gates and evidence.target.adjacency is Adjacency.REPLACE_ONE
    mine = [one for one in releases if one.phase == index and one.kind != TRIAL]
    steps = [phase["selection"][key] for key in ("scores", "threshold", "answers")
             if key in phase["selection"]]  # fmt: skip
    # A gate counts records that entered earlier, but for a first cohort that was drawn by chance.
    asked = cohorts[first:] if hidden else cohorts[index:]
    for cohort in cohorts:
        charged = [
            (release.selects, charge.event)
            for release in mine
            for charge in release.charges
            if cohort in charge.cohorts
        ]
        selected = [to_record(event) for selects, event in charged if selects]
        for step in steps if cohort in asked else []:
            if not any(is_same_json(step, _without_mechanism(record)) for record in selected):
                yield f"phase {index} selects from cohort {cohort} and does not charge it"
        exposed = _exposures(event for selects, event in charged if not selects)
        for steps_, noise, rate in _trained(phase, cohort, entries_may_differ=unseen):
            paid = [exposure for exposure in exposed if _covers(exposure, steps_, noise, rate)]
            if not paid:
                yield f"phase {index} trains on cohort {cohort} and does not charge all of it"
            else:
                exposed.remove(min(paid, key=lambda exposure: exposure.sample_rate))
        trained = [to_record(event) for selects, event in charged if not selects]
        fitted = [one["noise_multiplier"] for one in trained if one["mechanism"] == _FITTED]
        for noise in _fitted(phase, cohort, entries_may_differ=unseen):
            if not any(paid <= noise for paid in fitted):
                yield f"phase {index} releases sums over cohort {cohort} and does not charge them"


def _without_mechanism(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "mechanism"}


def _trained(
    phase: Mapping[str, Any], cohort: str, *, entries_may_differ: bool
) -> list[tuple[int, float, float]]:
    """Steps, noise and rate at which a phase trains on a cohort; the costlier first."""
    if cohort == NEVER_SELECTED or int(cohort) > phase["index"]:
        return []
    new, old = "sample_rate_new", "sample_rate_old"
    rates = [new] if int(cohort) == phase["index"] else [old]
    if entries_may_differ and int(cohort) > 0:
        rates = [new, old]
    trainings = [
        (part["steps"], part["noise_multiplier"], rate)
        for part in (phase["catch_up"], phase["training"])
        if part is not None
        and not part.get("statistics")
        and (rate := max(part[name] for name in rates))
    ]
    return sorted(trainings, key=lambda training: training[2], reverse=True)


def _fitted(phase: Mapping[str, Any], cohort: str, *, entries_may_differ: bool) -> list[float]:
    """Noise of the sums over a cohort that a phase fits a head from; nothing where it is not."""
    index, training = phase["index"], phase["training"]
    if cohort == NEVER_SELECTED or not training.get("statistics"):
        return []
    met = int(cohort) == index or (entries_may_differ and 0 < int(cohort) < index)
    return [float(training["noise_multiplier"])] if met else []


def _about_events(mismatch: Difference) -> bool:
    where = mismatch.place[2:3]
    return mismatch.place[:1] == ("cohorts",) and where in ((), ("events",), ("cohort",))


def _other_events(mismatch: Difference) -> str:
    if mismatch.place[2:3] != ("events",):
        return "cohorts are missing, added or out of order"
    return (
        f"cohort {mismatch.place[1]} lists other events than the entries charge it "
        f"({mismatch.says})"
    )


def _second_faults(stated: Mapping[str, Any], second: float, apart: float) -> Iterator[str]:
    for key in ("pld", "rdp"):
        if not second <= stated[key] + apart:
            yield (
                f"epsilon by {key} is stated as {stated[key]:.4f}, dp-accounting finds "
                f"{second:.4f}, and {apart:.4f} is all that they may differ by: too little is "
                "stated"
            )


def _cohort_faults(
    stated: Sequence[Mapping[str, Any]], seconds: Mapping[str, float], apart: float
) -> Iterator[str]:
    for record in stated:
        second = seconds.get(record["cohort"], math.inf)
        for key in ("epsilon_pld", "epsilon_rdp"):
            if not second <= record[key] + apart:
                yield (
                    f"cohort {record['cohort']}: {key} is stated as {record[key]:.4f}, "
                    f"dp-accounting finds {second:.4f}: too little is stated"
                )


def _spoken(cohort: str) -> str:
    return cohort.replace("_", " ")
