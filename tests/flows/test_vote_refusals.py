"""What `dpal vote` shows without releasing anything, and what it refuses in one sentence."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.accounting.events import Charge, NoisyVotes, Release
from dpal.config.runtime import RuntimeConfig
from dpal.errors import DpalError, ParameterError
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.privacy import Adjacency, PrivacyTarget, Unit
from dpal.runs.open_ledger import open_ledger
from dpal.runs.vote_release import release_ballots
from dpal.runs.vote_request import VoteRequest
from tests.flows.calling import call, sentence
from tests.flows.voting import (
    LABELS,
    NAMES,
    ballots,
    checked,
    entries,
    releases,
    vote,
    write_ballots,
    write_records,
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_ballots("b.parquet", ballots(1))


def nothing_was_released() -> bool:
    return not Path("artifacts").exists()


def refused(*arguments: str) -> str:
    """The one sentence of a refusal that left nothing behind, with and without a name."""
    said = sentence(vote(*arguments, "--name", "refused"))
    assert nothing_was_released()
    return said


def with_value(value: float, *, column: str = "ballot") -> str:
    said = ballots(1).astype(float)
    said[3, 4, 1] = value
    return write_ballots("wrong.parquet", said, column=column)


def rows(change) -> str:
    table = pq.read_table("b.parquet")
    pq.write_table(change(table), "wrong.parquet")
    return "wrong.parquet"


def test_a_sweep_shows_costs_of_each_value():
    shown = json.loads(vote("b.parquet", "--sweep", "sigma=4:12:4", "--json").stdout)
    assert shown["key"] == "sigma"
    costs = [row["epsilon"] for row in shown["rows"]]
    assert costs == sorted(costs, reverse=True)
    assert [row["value"] for row in shown["rows"]] == [4, 8, 12]
    shown = json.loads(vote("b.parquet", "--sweep", "queries=5,10,40", "--json").stdout)
    assert [row["fit"] for row in shown["rows"]] == [5, 10, 40]  # the least noise that fits
    sigmas = [row["sigma"] for row in shown["rows"]]
    assert sigmas == sorted(sigmas)
    table = vote("b.parquet", "--sweep", "epsilon=1,4")
    assert "Votes over epsilon" in table.stdout
    assert DpalError.closing in table.stdout
    tau = ("--mechanism", "tau_l2", "--sweep", "limit=1,1.2")
    assert vote("b.parquet", *tau, "--limit", "1").returncode == 0
    assert nothing_was_released()


def test_figures_of_these_votes_are_said_to_be_private():
    wide = "COLUMNS", "300"
    for arguments in ((), ("--sweep", "sigma=9,12"), ("--name", "told")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(*wide)
            quiet = vote("b.parquet", *arguments)
            shown = vote("b.parquet", *arguments, "--private-figures")
        said = " ".join(shown.stdout.split())
        assert "private themselves" in said
        assert "exact" in said
        assert "exact" not in quiet.stdout and "papernot" not in quiet.stdout
        record = json.loads(vote("b.parquet", *arguments, "--private-figures", "--json").stdout)
        assert "private themselves" in record["private"]
    assert "exact" not in Path("artifacts/told/certificate.json").read_text(encoding="utf-8")


def test_advice_from_public_labels_costs_nothing():
    write_records(Path("public.parquet"), 80, seed=1, prefix="open")
    shown = vote("b.parquet", "--explain", "--public", "public.parquet", "--json")
    assert shown.returncode == 0, shown
    found = json.loads(shown.stdout)
    assert found["source"] == "public labels"
    assert {one["mechanism"] for one in found["options"]} >= {"binary", "powerset"}
    best = max(found["options"], key=lambda one: one["queries"])
    text = vote("b.parquet", "--explain", "--public", "public.parquet").stdout
    assert f"choose --mechanism {best['mechanism']}" in text
    assert "they choose" in text
    assert nothing_was_released()


def test_advice_from_the_ballots_is_paid_for_once():
    pay = ("b.parquet", "--explain", "--pay", "0.5", "--name", "look")
    first, again = vote(*pay, "--json"), vote(*pay, "--json")
    assert first.returncode == 0, first
    assert json.loads(first.stdout) == json.loads(again.stdout)
    found = json.loads(first.stdout)
    assert found["source"] == "a paid-for summary of the ballots"
    assert found["paid"]["epsilon"] <= 0.5
    assert releases("look") == releases("look", EntryKind.COMMIT) == ["votes/summary"]
    told = vote(*pay).stdout
    assert "--after look" in told
    assert "a guess" in told  # with so few teachers
    assert checked("look").returncode == 0
    write_ballots("other.parquet", ballots(2))
    said = sentence(vote("other.parquet", *pay[1:]))
    assert "about other ballots" in said
    assert "another plan" in sentence(vote("b.parquet", "--name", "look"))
    assert len(entries("look")) == 3


def test_nothing_is_paid_for_where_no_vote_could_follow():
    said = np.random.default_rng(1).integers(0, 3, (20, 9))
    file = write_ballots("classes.parquet", said, column="class", names=("a", "b", "c"))
    charged = ("--sigma", "9", "--threshold", "6", "--threshold-sigma", "9")
    for options in (("--pay", "2"), ("--pay", "0.5", *charged, "--answered-share", "0.2")):
        refused = vote(file, "--explain", "--name", "look", *options)
        assert refused.returncode == 2, refused
        assert entries("look") == []


def test_a_summary_beside_which_votes_do_not_fit_is_not_said_to_be_unreleased():
    said = np.random.default_rng(1).integers(0, 3, (20, 9))
    file = write_ballots("classes.parquet", said, column="class", names=("a", "b", "c"))
    paid = ("--explain", "--pay", "1.999", "--name", "look", "--sigma", "1")
    done = vote(file, *paid)
    assert done.returncode == 0, done
    assert DpalError.closing not in done.stdout + done.stderr
    assert releases("look", EntryKind.COMMIT) == ["votes/summary"]
    found = json.loads(vote(file, *paid, "--json").stdout)
    assert found["rejected"] and found["paid"]["epsilon"] < 2


OPTIONS = [
    (("--delta", "0.01"), "below 1/2,000"),
    (("--epsilon", "0.01", "--sigma", "3"), "raise sigma"),
    (("--epsilon", "2", "--sigma", "18"), "16 fit"),
    (("--after", "nobody"), "account nobody (--after)"),
    (("--sweep", "colour=1,2"), "--sweep colour"),
    (("--sweep", "sigma=a,b"), "--sweep sigma takes numbers"),
    (("--sweep", "queries=0,1"), "queries must be"),
    (("--sweep", "sigma"), "--sweep takes"),
    (("--sweep", "sigma=1,2", "--explain"), "two views"),
    (("--sweep", "sigma=1,2", "--agreement", "0.9"), "them out"),
    (("--explain",), "--explain reads public"),
    (("--explain", "--public", "nowhere.parquet"), "nowhere.parquet"),
    (("--explain", "--pay", "-1"), "epsilon must"),
    (("--threshold", "5"), "--threshold-sigma belong"),
    (("--mechanism", "top_m"), "top_m voting needs"),
    (("--mechanism", "binary", "--limit", "2"), "binary voting"),
    (("--mechanism", "top_m", "--limit", "9"), "at most 4"),
    (("--mechanism", "gnmax"), "leave --mechanism out"),
    (("--sigma", "0"), "sigma must"),
    (("--sigma", "nan"), "sigma must be"),
    (("--epsilon", "nan"), "epsilon must be"),
    (("--cut", "nan"), "cut must be"),
    (("--partitions", "nowhere.parquet"), "nowhere.parquet does"),
]


@pytest.mark.parametrize(("options", "says"), OPTIONS, ids=lambda one: str(one)[:40])
def test_request_that_cannot_be_are_refused(options, says):
    assert says in refused("b.parquet", *options)


def test_without_a_number_of_records_nobody_knows_what_epsilon_means():
    said = sentence(call("vote", "b.parquet", "--name", "refused"))
    assert "give --records" in said
    assert DpalError.closing in said
    assert nothing_was_released()


@pytest.mark.parametrize("name", ["../outside", "Upper", "two words", "a/b", "", "."])
def test_a_name_stays_below_the_artifacts(name):
    said = sentence(vote("b.parquet", "--name", name))
    assert DpalError.closing in said
    assert nothing_was_released()
    assert not Path("../outside").exists()


def test_what_is_no_ballot_is_refused():
    assert "no vote" in refused(with_value(np.nan))
    assert "ballot with 2" in refused(with_value(2))
    assert "ballot with 0.5" in refused(with_value(0.5))
    assert "scores outside" in refused(with_value(1.5, column="scores"))
    assert "scores with NaN" in refused(with_value(np.nan, column="scores"))
    few = write_ballots("few.parquet", ballots(1, teachers=2))
    assert "2 teachers cannot" in refused(few)
    assert "does not exist" in refused("nowhere.parquet")
    Path("text.parquet").write_text("id,teacher,ballot\n")
    assert "readable Parquet" in refused("text.parquet")


def test_every_teacher_votes_once_on_every_query():
    missing = refused(rows(lambda table: table.slice(0, len(table) - 1)))
    assert "teacher t8 did" in missing and "query q-019" in missing
    twice = refused(rows(lambda table: pa.concat_tables([table, table.slice(5, 1)])))
    assert "teacher t5 voted twice" in twice and "query q-000" in twice


def test_all_teachers_vote_on_the_same_labels():
    for at, names in (("one", NAMES), ("two", NAMES[:-1])):
        cast = ballots(1)[:, :1, : len(names)]
        write_ballots(f"{at}.parquet", cast, names=names, teachers=[at])
    assert "other labels" in refused("one.parquet", "two.parquet")
    write_ballots("one.parquet", ballots(1)[:, :1], names=(), teachers=["one"])
    write_ballots("two.parquet", ballots(1)[:, :1, :3], names=(), teachers=["two"])
    said = refused("one.parquet", "two.parquet")
    assert "two.parquet votes on 3 labels" in said
    table = pq.read_table("b.parquet")
    lists = table["ballot"].to_pylist()
    lists[7] = [*lists[7], 1]
    odd = table.set_column(2, "ballot", pa.array(lists))
    assert f"{LABELS} labels" in refused(rows(lambda _: odd))


def test_classes_have_public_names():
    chosen = np.arange(30).reshape(10, 3) % 3
    bare = write_ballots("bare.parquet", chosen, column="class", names=())
    assert "class_names in" in refused(bare)
    few = write_ballots("few.parquet", chosen, column="class", names=("a", "b"))
    assert "named class 2" in refused(few)
    below = write_ballots("below.parquet", chosen - 1, column="class", names=("a", "b"))
    assert "named class -1" in refused(below)


def parts(shared: str) -> str:
    """Records of nine teachers, of which one record, or one group, is of two."""
    table = {
        "id": [f"r{at}" for at in range(18)],
        "teacher": [f"t{at % 9}" for at in range(18)],
        "group": [f"g{at % 9}" for at in range(18)],
    }
    if shared:
        table[shared][1] = table[shared][0]
    pq.write_table(pa.table(table), "parts.parquet")
    return "parts.parquet"


def test_partitions_that_overlap_are_refused():
    assert "1 records were seen" in refused("b.parquet", "--partitions", parts("id"))
    assert "1 groups were seen" in refused(
        "b.parquet", "--partitions", parts("group"), "--unit", "group"
    )
    table = pq.read_table(parts("")).slice(0, 8)
    pq.write_table(table, "parts.parquet")
    said = refused("b.parquet", "--partitions", "parts.parquet")
    assert "of teacher t8" in said
    done = vote("b.parquet", "--partitions", parts(""))
    assert done.returncode == 0, done


def test_a_campaign_is_no_account_of_teachers():
    """Held like one, and charged for something else than votes."""
    place = Path("artifacts/trained")
    event = NoisyVotes(queries=1, squared_sensitivity=1.0, sigma=9.0)
    charges = (Charge(cohorts=("0",), event=event),)
    training = Release(name="phase-0/training", kind="training", phase=0, charges=charges)
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
    with lock_folder(place), closing(open_ledger(RuntimeConfig())) as store:
        CampaignLedger(store, "trained", place).hold(target, "plan", "pool", [training])
    said = sentence(vote("b.parquet", "--name", "after", "--after", "trained"))
    assert "trained (--after) is no" in said and said.endswith(DpalError.closing)
    assert entries("after") == []
    sentence(vote("b.parquet", "--name", "trained"))
    assert len(entries("trained")) == 1


def test_teachers_that_promised_less_are_not_asked_again_under_another_account(monkeypatch):
    told = {"teacher": ["t0", "t3"], "epsilon": [0.5, 0.5]}
    pq.write_table(pa.table(told), "budgets.parquet")
    assert vote("b.parquet", "--name", "less", "--budgets", "budgets.parquet").returncode == 0
    for options in ((), ("--budgets", "budgets.parquet")):
        asked = ("--after", "less", "--epsilon", "4", *options)
        said = sentence(vote("b.parquet", "--name", "more", *asked))
        assert "account less (--after)" in said and said.endswith(DpalError.closing)
    assert entries("more") == []
    monkeypatch.setattr("dpal.runs.vote_request.budget_cohorts_in", lambda _: [])  # as it was
    assert vote("b.parquet", "--name", "more", "--after", "less", "--epsilon", "4").returncode == 0
    verified = call("verify", "artifacts/more", "--ledger", "artifacts/more")
    assert verified.returncode == 1
    assert "teachers of less" in " ".join(verified.stdout.split())


def of_the_same(
    seed: int, *, queries: range = range(20), teachers: int = 12, first: int = 0
) -> str:
    """Ballots on some of 40 queries; a seed is an ensemble, a first number what it is called."""
    said = ballots(seed, queries=40, teachers=teachers)[queries.start : queries.stop]
    place, named = f"{seed}-{first}.parquet", [f"{first + at}" for at in range(teachers)]
    ids = [f"q-{query:03d}" for query in queries]
    return write_ballots(place, said, teachers=named, queries=ids)


OTHER = ("--other-teachers", "trained at the\n harbour clinic")


def test_teachers_are_known_by_their_ballots_whatever_they_are_called():
    """The same ballots under other names would be paid for by a second promise."""
    assert vote(of_the_same(1), "--name", "first", "--blocks", "2").returncode == 0
    again = of_the_same(1, first=1000)
    for more in ((), OTHER):
        said = sentence(vote(again, "--name", "second", *more))
        assert "these teachers have the account first already" in said
        assert "--after first" in said
    assert entries("second") == []
    # Unrecognised while they were asked something else; recognised once the queries meet.
    later = of_the_same(1, first=1000, queries=range(20, 40))
    assert vote(later, "--name", "second", "--blocks", "2").returncode == 0
    for name, first in (("second", 1000), ("first", 0)):
        met = range(20) if name == "second" else range(20, 40)
        file = of_the_same(1, first=first, queries=met)
        assert "have the account" in sentence(vote(file, "--name", name, "--blocks", "2"))
        assert releases(name) == ["votes/1"]
    assert "account first already" in sentence(vote(again, "--name", "third"))
    both = ("--name", "third", "--after", "first", "--epsilon", "5")
    assert "account second" in sentence(vote(again, *both))


@pytest.mark.parametrize("which", ["first", "second"])
def test_nobody_is_told_to_count_an_account_that_cannot_be_counted(which):
    """An account of teachers that promise less counts in no other promise, nor others in its."""
    pq.write_table(pa.table({"teacher": ["0"], "epsilon": [1.0]}), "budgets.parquet")
    less = ("--budgets", "budgets.parquet")
    options = {name: less if name == which else () for name in ("first", "second")}
    assert vote(of_the_same(1), "--name", "first", *options["first"]).returncode == 0
    for seed in (1, 2):  # the same votes, and others of teachers who are called the same
        said = sentence(vote(of_the_same(seed), "--name", "second", *options["second"]))
        assert "--name first" in said
        assert "--after" not in said
    counted = sentence(vote(of_the_same(2), "--name", "second", "--after", "first", *less))
    assert "--after" in counted or "budgets" in counted


def test_another_ensemble_may_be_numbered_alike():
    """Somebody says that no private record is behind both, and is on record with it."""
    assert vote(of_the_same(1), "--name", "first", "--blocks", "2").returncode == 0
    for queries in (range(20), range(20, 40)):
        said = sentence(vote(of_the_same(2, queries=queries, teachers=15), "--name", "second"))
        assert "same name)" in said
        assert "--other-teachers REASON" in said
        assert entries("second") == []
    file = of_the_same(2, teachers=15)
    assert "needs a reason" in sentence(vote(file, "--name", "second", "--other-teachers", " "))
    done = vote(file, "--name", "second", *OTHER)
    assert done.returncode == 0, done
    assert "first: trained at the harbour clinic" in (" ".join(done.stdout.split()))
    record = json.loads(Path("artifacts/second/campaign.json").read_text(encoding="utf-8"))
    assert record["other_teachers"] == {"first": "trained at the harbour clinic"}
    # It need not be said again, and holds for both of them.
    assert vote(file, "--name", "second").returncode == 0
    more = of_the_same(1, queries=range(20, 40))
    assert vote(more, "--name", "first", "--blocks", "2").returncode == 0
    assert "ballots shows" in " ".join(done.stdout.split())
    # A third of such names needs a reason of its own.
    third = of_the_same(3)
    assert "account first" in sentence(vote(third, "--name", "third"))


def test_of_two_at_once_one_gets_a_promise():
    """Each would find no other account while neither has kept its ballots."""

    def released(request: VoteRequest) -> str:
        try:
            release_ballots(request)
        except ParameterError as error:
            return str(error)
        return ""

    asked = [
        VoteRequest(
            places=(Path(of_the_same(1, first=first)),), name=name, epsilon=2.0, records=2000
        )
        for name, first in (("one", 0), ("two", 1000))
    ]
    assert all(request.spec for request in asked)  # fitted before, so that both compare at once
    with ThreadPoolExecutor(2) as pool:
        accepted, refused = sorted(pool.map(released, asked))
    assert accepted == ""
    assert "these teachers have the account" in refused
    assert sorted([releases("one"), releases("two")]) == [[], ["votes/1"]]


def test_ballots_that_are_gone_cannot_clear_an_account():
    assert vote(of_the_same(1), "--name", "first").returncode == 0
    kept = Path("artifacts/first/confidential/votes-1/ballots.parquet")
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    file = of_the_same(2, first=1000)
    assert "ballots.parquet" in sentence(vote(file, "--name", "second"))
    kept.unlink()
    said = sentence(vote(file, "--name", "second"))
    assert "missing here)" in said
    assert entries("second") == []
    assert vote(file, "--name", "second", *OTHER).returncode == 0


@pytest.mark.slow
def test_thresholds_of_classes_are_explained_and_swept():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 3, (12, 1))
    said = np.where(rng.random((12, 30)) < 0.9, truth, rng.integers(0, 3, (12, 30)))
    file = write_ballots("classes.parquet", said, column="class", names=("a", "b", "c"))
    done = vote(file, "--explain", "--json")
    assert done.returncode == 0, done
    record = json.loads(done.stdout)
    assert record["thresholds"]
    for row in record["thresholds"]:
        assert row["sigma"] < record["plain_sigma"]
        assert row["answered"][f"{row['answer_from']:g}"] == pytest.approx(0.9, abs=0.01)
    swept = vote(file, "--sweep", "answer_from=0.8:0.9:0.1", "--json")
    rows = json.loads(swept.stdout)["rows"]
    assert [row["value"] for row in rows] == pytest.approx([0.8, 0.9])
    assert all(row["epsilon"] <= 2 and row["threshold_sigma"] > 0 for row in rows)
    both = ("--pay", "1", "--name", "paid", "--public", file)
    assert "or neither" in sentence(vote(file, "--explain", *both))
    refused_together = sentence(vote(file, "--answer-from", "0.8", "--sigma", "3"))
    assert "chooses threshold" in refused_together
    released = vote(file, "--answer-from", "0.8", "--name", "checked")
    assert released.returncode == 0, released
    assert checked("checked").returncode == 0
