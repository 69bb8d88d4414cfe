"""`dpal vote`: ballots in files to released labels, once, with a certificate."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.certificate.document import sealed_certificate, to_text
from dpal.ledger.entries import Kind
from tasks.voting import released_table
from tests.conftest import write_config
from tests.flows.calling import call, sentence
from tests.flows.leaks import files_below, naming
from tests.flows.voting import (
    LABELS,
    NAMES,
    ballots,
    certificate,
    checked,
    entries,
    mode_of,
    releases,
    vote,
    write_ballots,
)

LABELS_OF = "artifacts/{}/votes-{}/released.parquet"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    """An account of two blocks, both released."""
    place = tmp_path_factory.mktemp("account")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for seed in (1, 2, 3):
            write_ballots(f"{seed}.parquet", ballots(seed))
        done = [vote(f"{at}.parquet", "--name", "clinic", "--blocks", "2") for at in (1, 1, 2)]
        assert [one.returncode for one in done] == [0] * 3, done
    return place


def released(name: str, block: int = 1) -> bytes:
    return Path(LABELS_OF.format(name, block)).read_bytes()


def test_without_a_name_nothing_is_released():
    done = vote(write_ballots("b.parquet", ballots(1)))
    assert done.returncode == 0, done
    assert "nothing was released; give the account a --name to release" in done.stdout
    assert "adjacency, unit" in done.stdout and "zero_out" in done.stdout
    assert [one.name for one in Path().iterdir()] == ["b.parquet"]


def test_the_same_ballots_again_give_the_same_labels_and_cost_nothing():
    file = write_ballots("b.parquet", ballots(1))
    first = vote(file, "--name", "once", "--json")
    before, known = released("once"), entries("once")
    again = vote(file, "--name", "once", "--json")
    assert (first.returncode, again.returncode) == (0, 0)
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert released("once") == before
    assert entries("once") == known
    assert [one.kind for one in known] == [Kind.HOLD, Kind.RESERVE, Kind.COMMIT]
    record = json.loads(first.stdout)
    assert record["epsilon"] <= record["target_epsilon"] == 8
    assert record["released"] == LABELS_OF.format("once", 1)
    table = pq.read_table(record["released"])
    assert table["id"].to_pylist() == [f"q-{at:03d}" for at in range(20)]
    assert {one for row in table["label"].to_pylist() for one in row} <= {0, 1}


def test_other_ballots_take_the_next_block_until_none_is_left(account, monkeypatch):
    monkeypatch.chdir(account)
    assert releases("clinic") == releases("clinic", Kind.COMMIT) == ["votes/1", "votes/2"]
    said = sentence(vote("3.parquet", "--name", "clinic", "--blocks", "2"))
    assert "all 2 blocks of the account clinic are released" in said
    assert releases("clinic") == ["votes/1", "votes/2"]


def test_an_account_is_about_its_teachers(account, monkeypatch):
    monkeypatch.chdir(account)
    others = [f"someone-{at}" for at in range(9)]
    write_ballots("others.parquet", ballots(1), teachers=others)
    said = sentence(vote("others.parquet", "--name", "clinic", "--blocks", "2"))
    assert "clinic is about other teachers; choose another --name, nothing was released" in said
    said = sentence(vote("1.parquet", "--name", "clinic", "--blocks", "3"))
    assert "another plan" in said
    assert len(entries("clinic")) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["epsilon"].update(rdp=found["epsilon"]["rdp"] - 0.5),
        lambda found: found["spent"].update(rdp=0.0),
        lambda found: found["rule"].update(sigma=found["rule"]["sigma"] * 2),
        lambda found: found.update(blocks=[20]),
        lambda found: found["ledger"]["entries"][1]["body"]["charges"][0].update(answers=1),
        lambda found: found["ledger"]["entries"].pop(3),
        lambda found: found["plan"]["content"]["spec"]["rule"].update(sigma=99.0),
        lambda found: found["plan"]["content"]["spec"].update(blocks=[20]),
        lambda found: found["promise"].update(epsilon=1.0),
        lambda found: found["statements"].update(partitions="checked by an auditor"),
        lambda found: found.update(teachers="another digest"),
    ],
    ids="epsilon spent sigma blocks charge entry plan-rule plan-blocks promise words who".split(),
)
def test_a_certificate_that_was_changed_and_sealed_again_fails(account, monkeypatch, change):
    monkeypatch.chdir(account)
    assert checked("clinic").returncode == 0
    document = certificate("clinic")
    change(document)
    Path("changed.json").write_text(to_text(sealed_certificate(document)), encoding="utf-8")
    done = call("verify", "changed.json", "--ledger", "artifacts/clinic")
    assert done.returncode == 1, done
    assert "FAILED" in done.stdout


def test_verify_names_promise_and_both_programs(account, monkeypatch):
    monkeypatch.chdir(account)
    done = checked("clinic")
    assert "FAILED" not in done.stdout
    assert "epsilon, dp-accounting" in done.stdout
    assert "ok: epsilon 8 at delta 5e-05, adjacency zero_out, unit record" in done.stdout


def test_ballots_stay_inside(account):
    folder = account / "artifacts" / "clinic"
    inside = {path for path in files_below(folder) if "confidential" in path.parts}
    assert {path.name for path in inside if path.is_file()} == {"ballots.parquet"}
    for path in [*inside, folder, folder / "pool.salt"]:
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path
    said = ballots(1)
    packed = [row.tobytes() for row in np.packbits(said, axis=2)]
    outside = [one for one in files_below(folder, account / "artifacts/ledger.sqlite")
               if one not in inside]  # fmt: skip
    for path in outside:
        if path.is_file():
            assert not any(one in path.read_bytes() for one in packed), path
    assert not naming(["t0", "t8"], [one for one in outside if one.name != "campaign.json"])


def test_the_ledger_has_salted_digests_of_ballots(account, monkeypatch):
    """Who guesses all ballots cannot confirm the guess by a digest of the ledger."""
    monkeypatch.chdir(account)
    file = Path("artifacts/clinic/confidential/votes-1/ballots.parquet")
    reserve = next(one for one in entries("clinic") if one.kind is Kind.RESERVE)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert reserve.body["inputs"] == {"confidential/votes-1/ballots.parquet": digest}
    table = pq.read_table(file)
    about = table.schema.metadata
    assert len(about.pop(b"dpal.salt")) == 32
    for guess in (table, table.replace_schema_metadata(about)):
        pq.write_table(guess, "guess.parquet", compression="zstd")
        assert hashlib.sha256(Path("guess.parquet").read_bytes()).hexdigest() != digest
    # Made of the same ballots, another account's file has another digest.
    assert vote("1.parquet", "--name", "other").returncode == 0
    other = next(one for one in entries("other") if one.kind is Kind.RESERVE)
    assert set(other.body["inputs"].values()) != {digest}


def test_a_file_for_each_teacher_is_the_same_as_one_for_all():
    said = ballots(4)
    Path("all").mkdir()
    for at in range(said.shape[1]):
        ids = [f"q-{query:03d}" for query in range(len(said))]
        table = pa.table({"id": ids, "ballot": said[:, at].tolist()})
        pq.write_table(table, f"all/t{at}.parquet")
    long = write_ballots("long.parquet", said, names=())
    shown = [vote(place, "--json").stdout for place in ("all", long)]
    assert json.loads(shown[0]) == json.loads(shown[1])
    assert vote("all", "--name", "one").returncode == 0
    assert vote(long, "--name", "one").returncode == 0
    assert releases("one") == ["votes/1"]


def test_scores_are_cut_at_a_public_number():
    said = np.where(ballots(5) == 1, 0.4, 0.1)
    low, high = ({"--cut": cut, "--sigma": "0.4", "--epsilon": "900"} for cut in ("0.3", "0.5"))
    file = write_ballots("scores.parquet", said, column="scores")
    found = []
    for name, options in (("low", low), ("high", high)):
        words = [word for pair in options.items() for word in pair]
        assert vote(file, "--name", name, *words).returncode == 0
        found.append(np.array(pq.read_table(LABELS_OF.format(name, 1))["label"].to_pylist()))
    # With so little noise the majority is released as it is; above one half nobody says yes.
    assert np.array_equal(found[0], ballots(5).mean(axis=1) > 0.5)
    assert not found[1].any()


def test_classes_are_counted_by_gnmax():
    chosen = np.random.default_rng(1).integers(0, 3, (15, 1)) * np.ones((1, 40), dtype=int)
    file = write_ballots("classes.parquet", chosen, column="class", names=("a", "b", "c"))
    done = vote(file, "--name", "classes", "--sigma", "2", "--epsilon", "40", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["mechanism"] == "gnmax"
    labels = pq.read_table(LABELS_OF.format("classes", 1))["label"].to_pylist()
    assert labels == chosen[:, 0].tolist()
    assert checked("classes").returncode == 0
    said = sentence(vote(file, "--mechanism", "binary"))
    assert "leave --mechanism out" in said


@pytest.mark.parametrize(
    "options",
    [
        ("--mechanism", "powerset"),
        ("--mechanism", "top_m", "--limit", "1"),
        ("--mechanism", "tau_l2", "--limit", "1.2"),
        ("--mechanism", "tau_l1", "--limit", "1.5", "--noises", "1"),
        ("--threshold", "6", "--threshold-sigma", "20", "--unit", "group"),
    ],
    ids=lambda one: one[1],
)
def test_every_mechanism_releases_and_is_verified(options):
    file = write_ballots("b.parquet", ballots(6, queries=4))
    done = vote(file, "--name", "any", "--sigma", "15", "--epsilon", "20", *options)
    assert done.returncode == 0, done
    found = checked("any")
    assert found.returncode == 0, found
    labels = np.array(pq.read_table(LABELS_OF.format("any", 1))["label"].to_pylist())
    assert labels.shape == (4, LABELS)
    assert set(np.unique(labels)) <= ({-1, 0, 1} if "--threshold" in options else {0, 1})


def test_an_earlier_account_counts_in_the_promise(account, monkeypatch):
    monkeypatch.chdir(account)
    alone = json.loads(vote("3.parquet", "--json", "--epsilon", "12").stdout)
    done = vote("3.parquet", "--json", "--epsilon", "12", "--name", "later", "--after", "clinic")
    after = json.loads(done.stdout)
    assert after["sigma"] > 1.2 * alone["sigma"]
    assert after["epsilon"] <= 12
    assert certificate("later")["before"] == "clinic"
    assert checked("later").returncode == 0
    said = sentence(vote("3.parquet", "--name", "much", "--after", "clinic", "--epsilon", "7"))
    assert "nothing was released" in said
    assert entries("much") == []


def test_a_campaign_is_no_account_of_teachers(account, monkeypatch):
    from tests.conftest import write_blobs

    monkeypatch.chdir(account)
    write_blobs(Path("pool.parquet"), 600, seed=1)
    from dpal.accounting.events import Charge, NoisyVotes, Release

    assert write_config  # a whole campaign would take seconds: one entry of it is enough
    release = Release(
        name="phase-0/training",
        kind="training",
        phase=0,
        charges=(Charge(cohorts=("0",), event=NoisyVotes(queries=1, squared_sensitivity=1.0,
                                                         sigma=9.0)),),
    )  # fmt: skip
    monkeypatch.setattr("tasks.ballots.release_of", lambda entry: release)
    said = sentence(vote("1.parquet", "--after", "clinic"))
    assert "clinic (--after) is no account of teachers; nothing was released" in said
    assert released_table(["a"], np.zeros((1, LABELS), np.int8)).column_names == ["id", "label"]
    assert NAMES
