"""Every kind of certificate in a ledger of its own, made without training or voting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.prior_spend import Declared, PriorSpend
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.canonical import file_digest, plain
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.improvement import IMPROVEMENT, ImprovementEvidence
from dpal.certificate.kinds.voting import voting_certificate
from dpal.certificate.read_and_seal import read_certificate, to_text
from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.ledger.entries import Entry
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.signing_key import SigningKey
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.improvement_plan import ImprovementPlan, ImprovementSpec
from dpal.planning.public_selection import (
    ChoiceSpec,
    FineTuning,
    PublicSelectionMethod,
    Uncertainty,
    Voters,
    guidance_for,
)
from dpal.planning.voting_plan import VotingPlan, VotingSpec
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from tests.certificate.certifying import certified, opened, run, with_delta, write_model
from tests.conftest import small_spec

VERSIONS = {"dpal": "0"}
_VOTES = PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
_RULE = VotingRule(mechanism=Mechanism.BINARY, teachers=20, labels=3, sigma=30.0)
_BOUND = CostBound(order=8.0, beta=0.05, noise=8.0, margin=6.0, limit=0.05)


@dataclass(frozen=True, kw_only=True)
class Certified:
    """A certificate with all that it can be held against.

    Attributes:
      kind: what it certifies.
      place: folder of its ledger, its anchors and its files.
      entries: of the ledger.
      document: the certificate.
      model: the certified weights; None where there are none.
    """

    kind: str
    place: Path
    entries: Sequence[Entry]
    document: dict[str, Any]
    model: Path | None

    def __repr__(self) -> str:  # a failing property would print all of it
        return f"Certified({self.kind})"

    @property
    def signer(self) -> SigningKey:
        """Holds the key that the ledger was opened with."""
        return SigningKey(self.place / "anchors")

    @property
    def key(self) -> str:
        """The data owner's public key."""
        return self.signer.public_key()

    @property
    def signature(self) -> str:
        """By the data owner."""
        return sign_statement(certificate_statement(self.document, self.key), self.signer)


def near(place: Path, *, delta: float = 1 / 6000) -> Certified:
    """An improvement that two releases beyond its start were charged for."""
    return _improvement(
        "near", place, PublicSelectionMethod.NEAR_PRIVATE, declared=None, delta=delta
    )


def free(place: Path) -> Certified:
    """An improvement of a campaign, and nothing beyond it."""
    return _improvement("free", place, PublicSelectionMethod.DIVERSE_PUBLIC, declared=None)


def declared(place: Path) -> Certified:
    """An improvement of a model whose cost was declared."""
    told = Declared(epsilon=3.0, delta=1e-5)
    return _improvement("declared", place, PublicSelectionMethod.DIVERSE_PUBLIC, declared=told)


def votes(place: Path) -> Certified:
    """Teachers, one block of whose votes is released."""
    return _account(
        "votes", place, VotingSpec(name="votes", target=_VOTES, rule=_RULE, blocks=(10, 10))
    )


def bounded(place: Path) -> Certified:
    """Teachers whose answers leave within a bound."""
    spec = VotingSpec(
        name="bounded",
        target=replace(_VOTES, epsilon=8.0),
        rule=_RULE,
        blocks=(10, 10),
        bound=_BOUND,
    )
    return _account("bounded", place, spec)


def student(place: Path) -> Certified:
    """The student of teachers, all of whose votes are released."""
    spec = VotingSpec(name="student", target=_VOTES, rule=_RULE, blocks=(10,))
    return _account("student", place, spec, learns=True)


MAKERS: Mapping[str, Callable[[Path], Certified]] = {
    one.__name__: one for one in (near, free, declared, votes, bounded, student)
}
KINDS = ("campaign", *MAKERS)


def _made(
    kind: str, place: Path, entries: Sequence[Entry], document: dict[str, Any], model: Path | None
) -> Certified:
    """Once through text, as from a file."""
    read = read_certificate(to_text(document))
    return Certified(kind=kind, place=place, entries=entries, document=read, model=model)


def _account(name: str, place: Path, spec: VotingSpec, *, learns: bool = False) -> Certified:
    plan, root = VotingPlan(spec), place / name
    store = opened(place)
    ledger = CampaignLedger(store, name, root)
    with lock_folder(root):
        ledger.hold(
            spec.target, plan.digest, "p" * 64, plan.releases(), accountant=spec.promise_accountant
        )
        path, release = root / "votes-1" / "released.parquet", next(plan.releases())
        ledger.release_once(release, lambda: _draw(path), inputs=[], artifacts=[path])
    entries = store.verified()
    store.close()
    model = root / "phase-0" / "model.safetensors" if learns else None
    about = None
    if model is not None:
        write_model(model, name)
        about = {"file": "phase-0/model.safetensors", "sha256": file_digest(model)}
    made = voting_certificate(entries, name, plain(plan), model=about, versions=VERSIONS)
    return _made(name, place, entries, made, model)


def _improvement(
    name: str,
    place: Path,
    method: PublicSelectionMethod,
    *,
    declared: Declared | None,
    delta: float = 1 / 6000,
) -> Certified:
    start = certified_plan(
        with_delta(
            delta,
            small_spec(
                strategy="naive",
                acquisition="random",
                privacy={"selection": "visible"},
                schedule={"initial": 600, "queries": [], "batch_size": 50, "epochs_per_phase": 1},
            ),
        )
    ).plan
    weights = place / "begun" / "phase-0" / "model.safetensors"
    document, before = None, PriorSpend(declared=declared)
    entries: Sequence[Entry] = []
    if declared is None:
        _, entries = run(place, start, campaign="begun")
        document = certified(entries, start, "begun")
        before = PriorSpend(campaign="begun", releases=tuple(start.releases()))
    else:
        write_model(weights, "begun")
    target = PrivacyTarget(epsilon=12.0, delta=delta)
    spec = _wanted(name, target, method, before, start.spec.model, file_digest(weights))
    plan = ImprovementPlan(spec)
    own = None
    if spec.guidance is not None:
        entries = _guided(place, name, plan, before)
        own = evidence_in(entries, name, plain(plan))
    model = place / name / "phase-0" / "model.safetensors"
    write_model(model, name)
    evidence = ImprovementEvidence(
        name=name,
        target=target,
        accountant=Accountant.PLD,
        start=document,
        declared=declared,
        start_model=file_digest(weights),
        own=own,
        plan=plain(plan),
        model={"file": "phase-0/model.safetensors", "sha256": file_digest(model)},
    )
    made = IMPROVEMENT.build(evidence, versions=VERSIONS)
    return _made(name, place, entries, made, model)


def _wanted(
    name: str,
    target: PrivacyTarget,
    method: PublicSelectionMethod,
    before: PriorSpend,
    model: Any,
    weights: str,
) -> ImprovementSpec:
    asked: dict[str, Any] = {"pca_epsilon": 0.3, "support_epsilon": 0.5, "voters": Voters.THRESHOLD}
    near_private = method is PublicSelectionMethod.NEAR_PRIVATE
    return ImprovementSpec(
        name=name,
        target=target,
        accountant=Accountant.PLD,
        before=before,
        choice=ChoiceSpec(
            method=method,
            labels=60,
            candidates=150,
            components=3,
            clusters=1,
            each=60,
            uncertainty=Uncertainty.ENTROPY,
        ),
        guidance=guidance_for(**asked, max_norm=None, target=target) if near_private else None,
        fine_tuning=FineTuning(
            optimizer="adam", learning_rate=1e-3, epochs=1, batch_size=8, weight_decay=0.0, shift=0
        ),
        model=model,
        public="0" * 64,
        start_model=weights,
    )


def _guided(place: Path, name: str, plan: ImprovementPlan, before: PriorSpend) -> list[Entry]:
    """Holds, releases and commits what is beyond the start."""
    store, root = opened(place), place / name
    ledger = CampaignLedger(store, name, root)
    with lock_folder(root):
        ledger.hold(plan.spec.target, plan.digest, "p" * 64, plan.releases(), before=before)
        for release in plan.releases():
            path = root / "guidance" / f"{release.name.replace('/', '-')}.npy"
            ledger.release_once(release, partial(_draw, path), inputs=[], artifacts=[path])
        ledger.end()
    entries = store.verified()
    store.close()
    return entries


def _draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"drawn for {path.name}")
