"""Every registered event keeps one contract, and so does one that only this test knows."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from pytest import approx

from dpal.accounting import rdp
from dpal.accounting.cohort_spending import second_opinion, spending
from dpal.accounting.events import (
    EVENTS,
    Event,
    NoisyCounts,
    NoisyMoments,
    NoisyScores,
    RandomizedResponse,
    from_record,
    register_event,
    to_record,
)
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.accounting.single_step_curves import Gaussian
from dpal.canonical import LATER, digest
from dpal.errors import BudgetExceeded, ParameterError
from dpal.ledger.campaign_account import campaign_account
from dpal.ledger.export_table import ledger_table
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.privacy import Adjacency
from tests.accounting import event_contract
from tests.accounting.event_contract import TARGET, by_pld, history, keeps_the_contract
from tests.accounting.noisy_bit import NoisyBit
from tests.conftest import ROOT
from tests.ledger.releasing import draw
from tests.variants import quick_and_slow


@pytest.fixture
def known(monkeypatch):
    """Registers events for one test."""

    def also(kind: type[Event]) -> type[Event]:
        monkeypatch.setitem(EVENTS, kind.mechanism, kind)
        return register_event(kind)

    return also


# Costs of pluralities, scaled ballots and secret draws are compared with exact laws elsewhere.
LONG = (
    "noisy_pluralities",
    "secret_draw",
    "skellam_scaled_counts",
    "skellam_scaled_majorities",
)


@pytest.mark.parametrize(
    "kind",
    quick_and_slow([kind for name, kind in EVENTS.items() if name not in LONG], EVENTS.values()),
    ids=lambda kind: kind.mechanism,
)
def test_an_event_keeps_the_contract(kind):
    keeps_the_contract(kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_those_that_take_long_are_written_read_and_bounded(name):
    for event in EVENTS[name].examples():
        event_contract.is_written_and_read(event)
        event_contract.has_a_renyi_curve(event)


def test_an_event_of_one_file_keeps_it_too(known):
    keeps_the_contract(known(NoisyBit))


def test_an_event_of_one_file_is_charged_written_and_read(known, tmp_path):
    """In a selection and after it, in a data set's budget, in a ledger, and by dp-accounting."""
    known(NoisyBit)
    bit, training = (
        NoisyBit(flipped=0.4, bits=3),
        EVENTS["poisson_subsampled_gaussian"].examples()[1],
    )
    releases = history(bit, after=training)
    ours = by_pld(releases, TARGET)
    assert second_opinion(releases, TARGET) == approx(ours, abs=5e-3)
    assert by_pld(history(after=training), TARGET) < ours
    assert spending("1", releases, TARGET).selection_epsilon == approx(bit.pure_epsilon)
    limit = RenyiFilter.fitted(TARGET.epsilon, TARGET.delta)
    taken = limit.charge(releases, Adjacency.ZERO_OUT)
    column = int(np.searchsorted(rdp.ORDERS, limit.order))
    assert taken.divergence == approx(
        1e9 * sum(event.renyi(Adjacency.ZERO_OUT)[column] for event in (bit, training)), rel=1e-6
    )
    with lock_folder(tmp_path / "toy"):
        ledger = CampaignLedger(LedgerStore(tmp_path / "ledger.sqlite"), "toy", tmp_path / "toy")
        ledger.hold(replace(TARGET, epsilon=ours + 1e-6), "plan", "pool", releases)
        for release in releases:
            draw(ledger, release)
    entries = LedgerStore(tmp_path / "ledger.sqlite", create=False).verified()
    account = campaign_account(entries, "toy")
    assert tuple(told.release for told in account.releases) == releases
    assert account.epsilon == approx(ours)
    assert "noisy_bit" in set(ledger_table(entries)["mechanism"])


def test_an_event_of_one_file_is_refused_beyond_a_promise(known, tmp_path):
    known(NoisyBit)
    releases = history(NoisyBit(flipped=0.1))
    with lock_folder(tmp_path / "toy"):
        ledger = CampaignLedger(LedgerStore(tmp_path / "ledger.sqlite"), "toy", tmp_path / "toy")
        ledger.hold(replace(TARGET, epsilon=1.0), "plan", "pool", releases)
        with pytest.raises(BudgetExceeded):
            ledger.reserve(releases[0], inputs=[])


def test_what_is_not_registered_is_neither_written_nor_read():
    with pytest.raises(ParameterError, match="registered event"):
        to_record(NoisyBit(flipped=0.3))
    with pytest.raises(ParameterError, match="mechanism 'noisy_bit' is unknown"):
        from_record({"mechanism": "noisy_bit", "flipped": 0.3, "bits": 1})


def test_a_mechanism_names_one_event():
    @dataclass(frozen=True, kw_only=True)
    class Another(NoisyMoments):
        pass

    with pytest.raises(ParameterError, match="'noisy_moments' names another"):
        register_event(Another)
    with pytest.raises(ParameterError, match="registered event"):
        to_record(Another(noise_multiplier=1.0))


def test_a_later_field_leaves_earlier_records_and_digests_as_they_are(monkeypatch):
    earlier = NoisyMoments(noise_multiplier=2.0)
    record, known = to_record(earlier), digest(earlier)

    @dataclass(frozen=True, kw_only=True)
    class Again(NoisyMoments):
        times: int = field(default=1, metadata=LATER)

    monkeypatch.setitem(EVENTS, Again.mechanism, Again)
    now = from_record(record)
    assert now == Again(noise_multiplier=2.0, times=1)
    assert to_record(now) == record and digest(now) == known
    twice = Again(noise_multiplier=2.0, times=2)
    assert from_record(to_record(twice)) == twice
    assert digest(twice) != known


def test_a_field_with_another_name_in_code_is_written_as_ever():
    record = {"mechanism": "noisy_counts", "epsilon": 0.5, "moved": 2}
    counts = from_record(record)
    assert counts == NoisyCounts(epsilon=0.5, l0_sensitivity=2)
    assert to_record(counts) == record
    assert digest(counts) == digest({"epsilon": 0.5, "moved": 2})
    with pytest.raises(ParameterError, match="parameter l0_sensitivity"):
        from_record({"mechanism": "noisy_counts", "epsilon": 0.5, "l0_sensitivity": 2})


@dataclass(frozen=True)
class _Cheap(Gaussian):
    """A distribution that forgets half of the loss."""

    def delta(self, losses, adjacency, direction):
        return Gaussian(2 * self.noise_multiplier).delta(losses, adjacency, direction)


@dataclass(frozen=True, kw_only=True)
class TooCheap(NoisyMoments):
    """Our accountant forgets half of the loss."""

    def composition(self):
        return _Cheap(self.noise_multiplier), 1


@dataclass(frozen=True, kw_only=True)
class TooCheapByRenyi(NoisyMoments):
    """Its Rényi curve does."""

    def renyi(self, adjacency):
        return super().renyi(adjacency) / 2


@dataclass(frozen=True, kw_only=True)
class FallsWithTheOrder(NoisyMoments):
    """No Rényi divergence does."""

    def renyi(self, adjacency):
        return super().renyi(adjacency)[::-1]


@dataclass(frozen=True, kw_only=True)
class Doubted(NoisyMoments):
    """The second opinion knows of more noise than there is."""

    def second_opinion(self, adjacency, width):
        return Gaussian(3 * self.noise_multiplier).second_opinion(adjacency, width)


@dataclass(frozen=True, kw_only=True)
class SaidToLoseLess(NoisyScores):
    """Its largest loss is twice what it says."""

    @property
    def pure_epsilon(self):
        return self.epsilon / 2


@dataclass(frozen=True, kw_only=True)
class FailsUnseen(NoisyMoments):
    """A chance to fail that no Rényi bound takes out of delta."""

    def composition(self):
        return Gaussian(self.noise_multiplier, 1e-9), 1


@dataclass(frozen=True, kw_only=True)
class SaysNoTooOften(RandomizedResponse):
    """Its answers do not add up to one."""

    def outcomes(self, adjacency, direction, *, yes):
        pairs = super().outcomes(adjacency, direction, yes=yes)
        return pairs if yes else [(p / 2, q / 2) for p, q in pairs]


@dataclass(frozen=True, kw_only=True)
class Dearer(NoisyMoments):
    """More noise costs more."""

    @classmethod
    def examples(cls):
        return super().examples()[::-1]


@dataclass(frozen=True, kw_only=True)
class Forgetful(NoisyMoments):
    """A parameter is not written."""

    count: int = 1

    def record(self):
        return {key: value for key, value in super().record().items() if key != "count"}

    @classmethod
    def examples(cls):
        return cls(noise_multiplier=2.0, count=2), cls(noise_multiplier=4.0, count=2)


@pytest.mark.parametrize(
    ("wrong", "refused_by"),
    [
        (TooCheap, event_contract.is_bounded_alike_by_all),
        (TooCheapByRenyi, event_contract.is_told_to_their_accountants),
        (FallsWithTheOrder, event_contract.has_a_renyi_curve),
        (SaidToLoseLess, event_contract.has_no_larger_loss_than_it_says),
        (FailsUnseen, event_contract.has_a_loss_distribution),
        (SaysNoTooOften, event_contract.answers_yes_or_no),
        (Doubted, event_contract.is_bounded_alike_by_all),
        (Dearer, event_contract.never_costs_more_with_more_noise),
        (Forgetful, event_contract.is_written_and_read),
    ],
)
def test_the_contract_refuses_what_is_wrong(wrong, refused_by, monkeypatch):
    monkeypatch.setitem(EVENTS, wrong.mechanism, wrong)
    with pytest.raises(AssertionError) as refusal:
        keeps_the_contract(wrong)
    assert refused_by.__name__ in [entry.name for entry in refusal.traceback]


def test_no_module_asks_which_event_it_has():
    """Whoever plans or verifies a mechanism of its own may: a campaign's plan trains by DP-SGD."""
    asking = []
    names = {kind.__name__ for kind in EVENTS.values()}
    for path in sorted((ROOT / "dpal").rglob("*.py")) + sorted((ROOT / "tasks").rglob("*.py")):
        if path.parent.name == "events":
            continue
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in names):
            continue
        for node in ast.walk(ast.parse(text)):
            asked = (
                node.args[1]
                if isinstance(node, ast.Call)
                and getattr(node.func, "id", "") in ("isinstance", "issubclass")
                else node.cls
                if isinstance(node, ast.MatchClass)
                else None
            )
            if asked is not None and names & {
                one.id for one in ast.walk(asked) if isinstance(one, ast.Name)
            }:
                asking.append(path.relative_to(ROOT).as_posix())
    assert asking == ["dpal/certificate/kinds/campaign.py"]
