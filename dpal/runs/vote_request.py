"""What a person asks of teachers whose ballots lie in files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpal.accounting.budget_cohort_names import budget_cohorts_in
from dpal.accounting.events import VOTING
from dpal.accounting.prior_spend import PriorSpend
from dpal.accounting.votes.mechanisms import Confidence, Mechanism, ReleasedVotes
from dpal.accounting.votes.voting_rule import VotingRule, noises_of
from dpal.config.runtime import RuntimeConfig
from dpal.config.vote import VoteConfig
from dpal.data.ballot_files import CastBallots, read_ballots, read_budgets
from dpal.data.class_names import label_number
from dpal.data.partitions import require_disjoint
from dpal.errors import ConfigError, LedgerMissing
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.hold_entry import before_from
from dpal.ledger.release_json import release_from
from dpal.planning.queries_per_teacher_budget import with_budgets
from dpal.planning.vote_calibration import fitted
from dpal.planning.voting_plan import (
    CertifiedVoting,
    VotingSpec,
    certify_voting,
    equal_blocks,
    most_queries,
)
from dpal.privacy import Adjacency, PrivacyTarget, Unit, choose_delta
from dpal.runs.accounts_of_earlier_versions import charged_by_answers, earlier_bound
from dpal.runs.open_ledger import open_ledger
from dpal.voting.ballots import Ballots, Choices

UNNAMED = "unnamed"
_SECTIONS = {"delta": "privacy", "records": "privacy", "budgets": "privacy", "mechanism": "voting"}
_LARGEST_DELTA = 0.01


@dataclass(frozen=True, kw_only=True)
class VoteRequest:
    """What is asked of teachers: by `dpal vote`, or by settings, which refusals speak of then."""

    places: tuple[Path, ...]
    name: str | None = None
    epsilon: float = 8.0
    delta: float | None = None
    records: int | None = None
    unit: Unit = Unit.RECORD
    adjacency: Adjacency = Adjacency.ZERO_OUT
    mechanism: Mechanism | None = None
    sigma: float | None = None
    limit: float | None = None
    noises: int = 2
    release: ReleasedVotes = ReleasedVotes.ANSWERS
    threshold: float | None = None
    threshold_sigma: float | None = None
    cut: float = 0.5
    blocks: int | None = None
    partitions: Path | None = None
    budgets: Path | None = None
    after: str | None = None
    other_teachers: str | None = None
    agreement: float | Sequence[float] | None = None
    answer_from: float | None = None
    answered_share: float | None = None
    gate: str | int | None = None
    dependents: Sequence[str | int] = ()
    queries: int | None = None
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    by_settings: bool = False

    @classmethod
    def of(cls, config: VoteConfig) -> VoteRequest:
        """What settings ask for."""
        ballots, privacy, voting = config.ballots, config.privacy, config.voting
        return cls(
            places=tuple(ballots.files),
            name=config.name,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            records=privacy.records,
            unit=privacy.unit,
            adjacency=privacy.adjacency,
            budgets=privacy.budgets,
            cut=ballots.cut,
            partitions=ballots.partitions,
            after=config.after,
            other_teachers=config.other_teachers,
            runtime=config.runtime,
            by_settings=True,
            **dict(voting),
        )

    def written(self, name: str, value: str = "") -> str:
        """One of these as a person writes it: an option of `dpal vote`, or a key of settings.

        >>> VoteRequest(places=()).written("after", "clinic")
        '--after clinic'
        >>> VoteRequest(places=(), by_settings=True).written("after", "clinic")
        'after: clinic'
        """
        if not self.by_settings:
            return f"--{name.replace('_', '-')} {value}".rstrip()
        key = f"{_SECTIONS[name]}.{name}" if name in _SECTIONS else name
        return f"{key}: {value}" if value else key

    @cached_property
    def cast(self) -> CastBallots:
        """The ballots, read and checked once.

        Raises:
          DataError: they cannot be counted. Nothing was released.
        """
        cast_ballots = read_ballots(self.places, cut=self.cut)
        if self.partitions is not None:
            groups = self.unit is Unit.GROUP
            require_disjoint(self.partitions, cast_ballots.teachers, groups=groups)
        return cast_ballots

    @cached_property
    def ballots(self) -> Ballots | Choices:
        """The same, packed."""
        votes = self.cast.votes
        if not self.cast.single_label:
            return Ballots.of(votes)
        classes = len(self.cast.names) or int(votes.max(initial=0)) + 1
        if not self.cast.names:
            # The largest class that was named would be a fact about votes.
            raise ConfigError.before_release(
                "ballots that name classes need class_names in the metadata of their file: how "
                "many classes there are must be public"
            )
        return Choices(votes.astype("int64"), classes)

    def changed(self, **settings: Any) -> VoteRequest:
        """The same with other settings; ballots are not read again."""
        request = replace(self, **settings)
        # Where cached properties keep what they found.
        vars(request).update(cast=self.cast, ballots=self.ballots)
        return request

    @cached_property
    def target(self) -> PrivacyTarget:
        """What is promised."""
        delta = self.delta
        if self.records is not None:
            delta = choose_delta(delta, pool_size=self.records)
        if delta is None or not delta < _LARGEST_DELTA:
            raise ConfigError.before_release(
                f"give {self.written('records')}, or a {self.written('delta')} below "
                f"{_LARGEST_DELTA:g} and below 1 / records"
            )
        return PrivacyTarget(
            epsilon=self.epsilon, delta=delta, adjacency=self.adjacency, unit=self.unit
        )

    @cached_property
    def spec(self) -> VotingSpec:
        """The account that is asked for; without a sigma, with the least that fits."""
        single = self.cast.single_label
        if self.queries is not None and self.gate is None:
            raise ConfigError.before_release(
                f"{self.written('queries')} says how many queries are paid for in full where a "
                "gate saves some; without one all queries in the files are asked, so leave it out"
            )
        confidence = None
        if self.threshold is not None and self.threshold_sigma is not None:
            confidence = Confidence(threshold=self.threshold, sigma=self.threshold_sigma)
        mechanism = self.mechanism or (Mechanism.GNMAX if single else Mechanism.BINARY)
        counts = self.release is ReleasedVotes.COUNTS
        rule = VotingRule(
            mechanism=mechanism,
            teachers=self.ballots.teachers,
            labels=self.ballots.labels,
            sigma=1.0 if self.sigma is None else self.sigma,
            limit=self.limit,
            noises=noises_of(mechanism, counts=counts, noises=self.noises),
            confidence=confidence,
            counts=counts,
        ).charged(by_answers=charged_by_answers(self.runtime.artifacts / (self.name or UNNAMED)))
        if single is not (rule.mechanism is Mechanism.GNMAX):
            wanted = "one class" if single else "a set of labels"
            raise ConfigError.before_release(
                f"these ballots name {wanted} each, and {rule.mechanism} voting counts others; "
                f"leave {self.written('mechanism')} out"
            )
        spec = VotingSpec(
            name=self.name or UNNAMED,
            target=self.target,
            rule=rule,
            blocks=self._blocks(),
            before=self._before(),
            **asked_first(
                self.gate,
                self.dependents,
                self.cast.names,
                rule.labels,
                keys=(self.written("gate"), self.written("dependents")),
            ),
        )
        if spec.gate is not None and self.sigma is not None and not self._chosen_queries:
            # As many as the promise is sure of: what a gate saves serves the rest of the file.
            fit = most_queries(replace(spec, rule=replace(rule, sigma=self.sigma)))
            each = max(1, min(self.ballots.queries, fit // len(spec.blocks)))
            spec = replace(spec, blocks=equal_blocks(each, len(spec.blocks)))
        whole = fitted(
            spec,
            sigma=self.sigma,
            agreement=self.agreement,
            answer_from=self.answer_from,
            answered_share=self.answered_share,
            earlier=earlier_bound(self.runtime.artifacts / (self.name or UNNAMED)),
        )
        if self.budgets is None:
            return whole
        own = read_budgets(self.budgets, self.cast.teachers)
        return with_budgets(whole, own, sigma=self.sigma)

    def _blocks(self) -> tuple[int, ...]:
        """Queries of each block; of an account that is there already its own."""
        return self._held_blocks or equal_blocks(
            self.queries or self.ballots.queries, self.blocks or 1
        )

    @property
    def _chosen_queries(self) -> bool:
        """Whether somebody said how many queries are paid for, or an account holds them."""
        return self.queries is not None or bool(self._held_blocks)

    @cached_property
    def _held_blocks(self) -> tuple[int, ...]:
        """Queries of each block of an account that is there already; none of another one."""
        folder = CampaignFolder(self.runtime.artifacts / (self.name or UNNAMED))
        if self.name is not None and (folder.root / RECORD).is_file():
            block_sizes = tuple(folder.read_record()["plan"].get("blocks", ()))
            if block_sizes and self.blocks in (None, len(block_sizes)):
                return block_sizes
        return ()

    def _before(self) -> PriorSpend:
        """What the account that `after` names holds, and what was counted before it.

        All that it holds, released or not: it may be released later, and another run of the same
        request must come to the same plan.

        Raises:
          ConfigError: the ledger knows no such account, it protects something else, or some of its
            teachers promise less.
        """
        name, target, option = self.after, self.target, self.written("after")
        if name is None:
            return PriorSpend()
        try:
            opened = open_ledger(self.runtime, create=False)
        except LedgerMissing:
            entries = []
        else:
            with closing(opened) as store:
                entries = store.verified()
        held = next((e for e in entries if e.campaign == name and e.kind is EntryKind.HOLD), None)
        if held is None:
            raise ConfigError.before_release(f"the ledger knows no account {name} ({option})")
        same = (held.body["unit"], held.body["adjacency"]) == (target.unit, target.adjacency)
        if not same:
            raise ConfigError.before_release(
                f"the account {name} ({option}) protects a {held.body['unit']} under "
                f"{held.body['adjacency']}, and this promise is about another unit or adjacency"
            )
        earlier = before_from(held.body.get("before")) or PriorSpend()
        own = tuple(release_from(release) for release in held.body["releases"])
        if any(release.kind != VOTING for release in own):
            # Its certificate could not say what both come to.
            raise ConfigError.before_release(f"{name} ({option}) is no account of teachers")
        if budget_cohorts_in((*earlier.releases, *own)):
            # Here they would vote on every query, whatever was promised to their records there.
            raise ConfigError.before_release(
                f"some teachers of the account {name} ({option}) promise their records less than "
                "the others do, and another account would ask them beyond that; ask with "
                f"{self.written('name', name)} what it still covers"
            )
        return PriorSpend(
            campaign=name, releases=(*earlier.releases, *own), declared=earlier.declared
        )

    def certified(self) -> CertifiedVoting:
        """The account, certified to keep its promise whatever the votes are."""
        return certify_voting(self.spec)


def asked_first(
    gate: str | int | None,
    dependents: Sequence[str | int],
    names: tuple[str, ...],
    labels: int,
    *,
    keys: tuple[str, str] = ("voting.gate", "voting.dependents"),
) -> dict[str, Any]:
    """Gate and dependents of a `VotingSpec`, from names or numbers of labels.

    Raises:
      ConfigError: there is no such label.
    """
    if gate is None:
        return {}
    return {
        "gate": label_number(gate, names, labels, key=keys[0]),
        "dependents": tuple(
            label_number(dependent, names, labels, key=keys[1]) for dependent in dependents
        ),
    }
