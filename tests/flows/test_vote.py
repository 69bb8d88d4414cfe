"""`dpal vote`: ballots in files to released labels, once, with a certificate."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.certificate.read_and_seal import sealed_certificate, to_text
from dpal.errors import DpalError
from dpal.ledger.entries import EntryKind
from dpal.runs.ballot_and_label_tables import read_ballots_file
from dpal.voting.ballots import Ballots
from tests.flows.calling import call, sentence
from tests.flows.leaks import files_below, naming
from tests.flows.voting import (
    LABELS,
    ballots,
    certificate,
    checked,
    entries,
    mode_of,
    releases,
    vote,
    write_ballots,
)
from tests.reports.pages import sound

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
    assert "a --name" in done.stdout
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
    assert [one.kind for one in known] == [EntryKind.HOLD, EntryKind.RESERVE, EntryKind.COMMIT]
    record = json.loads(first.stdout)
    assert record["epsilon"] <= record["target_epsilon"] == 2
    assert record["released"] == LABELS_OF.format("once", 1)
    table = pq.read_table(record["released"])
    assert table["id"].to_pylist() == [f"q-{at:03d}" for at in range(20)]
    assert {one for row in table["label"].to_pylist() for one in row} <= {0, 1}


def test_other_ballots_take_the_next_block_until_none_is_left(account, monkeypatch):
    monkeypatch.chdir(account)
    assert releases("clinic") == releases("clinic", EntryKind.COMMIT) == ["votes/1", "votes/2"]
    said = sentence(vote("3.parquet", "--name", "clinic", "--blocks", "2"))
    assert "all 2 blocks" in said
    assert releases("clinic") == ["votes/1", "votes/2"]


def test_an_account_is_about_its_teachers(account, monkeypatch):
    monkeypatch.chdir(account)
    others = [f"someone-{at}" for at in range(9)]
    write_ballots("others.parquet", ballots(1), teachers=others)
    said = sentence(vote("others.parquet", "--name", "clinic", "--blocks", "2"))
    assert "other teachers" in said and said.endswith(f"; {DpalError.closing}")
    said = sentence(vote("1.parquet", "--name", "clinic", "--blocks", "3"))
    assert "another plan" in said
    assert len(entries("clinic")) == 5


CHANGES = {
    "epsilon": lambda found: found["epsilon"].update(rdp=found["epsilon"]["rdp"] - 0.5),
    "spent": lambda found: found["spent"].update(rdp=0.0),
    "sigma": lambda found: found["rule"].update(sigma=found["rule"]["sigma"] * 2),
    "blocks": lambda found: found.update(blocks=[20]),
    "charge": lambda found: found["ledger"]["entries"][1]["body"]["charges"][0].update(answers=1),
    "entry": lambda found: found["ledger"]["entries"].pop(3),
    "plan's sigma": lambda found: found["plan"]["content"]["spec"]["rule"].update(sigma=99.0),
    "plan's blocks": lambda found: found["plan"]["content"]["spec"].update(blocks=[20]),
    "promise": lambda found: found["promise"].update(epsilon=0.5),
    "statement": lambda found: found["statements"].update(partitions="checked by an auditor"),
    "teachers": lambda found: found.update(teachers="another digest"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_certificate_that_was_changed_and_sealed_again_fails(account, monkeypatch, change):
    monkeypatch.chdir(account)
    document = certificate("clinic")
    change(document)
    Path("changed.json").write_text(to_text(sealed_certificate(document)), encoding="utf-8")
    done = call("verify", "changed.json", "--ledger", "artifacts/clinic")
    assert done.returncode == 1, done
    assert "FAILED" in done.stdout


def test_verify_names_promise_and_both_programs(account, monkeypatch):
    monkeypatch.chdir(account)
    done = checked("clinic")
    assert done.returncode == 0
    assert "FAILED" not in done.stdout
    assert "epsilon, dp-accounting" in done.stdout
    assert "ok: epsilon 2 at delta 5e-05, adjacency zero_out, unit record" in done.stdout


def test_ballots_stay_inside(account):
    folder = account / "artifacts" / "clinic"
    inside = {path for path in files_below(folder) if "confidential" in path.parts}
    assert {path.name for path in inside if path.is_file()} == {"ballots.parquet"}
    for path in [*inside, folder, folder / "pool.salt"]:
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path
    packed = np.packbits(ballots(1), axis=2)
    rows = [row.tobytes() for row in packed if len(np.unique(row)) > 3]
    assert len(rows) > 5
    ledger = account / "artifacts" / "ledger.sqlite"
    for path in files_below(folder, ledger):
        if path.is_file() and path not in inside:
            assert not any(one in path.read_bytes() for one in rows), path
    # Whose ballots they are is known to the record of the account, which names the teachers.
    named = naming(['"t0"', " t0 "], [one for one in files_below(folder) if one not in inside])
    assert named == {folder / "campaign.json"}


def test_the_ledger_has_salted_digests_of_ballots(account, monkeypatch):
    """Who guesses all ballots cannot confirm the guess by a digest of the ledger."""
    monkeypatch.chdir(account)
    file = Path("artifacts/clinic/confidential/votes-1/ballots.parquet")
    reserve = next(one for one in entries("clinic") if one.kind is EntryKind.RESERVE)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert reserve.body["inputs"] == {"confidential/votes-1/ballots.parquet": digest}
    table = pq.read_table(file)
    about = table.schema.metadata
    assert len(about.pop(b"dpal.salt")) == 32
    guesses = []
    for guess in (table, table.replace_schema_metadata(about)):
        pq.write_table(guess, "guess.parquet", compression="zstd", write_page_checksum=True)
        guesses.append(hashlib.sha256(Path("guess.parquet").read_bytes()).hexdigest())
    assert guesses[0] == digest  # whoever has the salt has the file
    assert guesses[1] != digest
    # Made of the same ballots, another account's file has another digest.
    elsewhere = "runtime.artifacts=elsewhere"
    assert vote("1.parquet", "--name", "other", "--set", elsewhere).returncode == 0
    other = Path("elsewhere/other/confidential/votes-1/ballots.parquet")
    assert hashlib.sha256(other.read_bytes()).hexdigest() != digest


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
    file = write_ballots("scores.parquet", said, column="scores")
    for name, cut in (("low", "0.3"), ("high", "0.5")):
        after = [] if name == "low" else ["--after", "low"]
        assert vote(file, "--name", name, "--cut", cut, *after).returncode == 0
        kept = Path(f"artifacts/{name}/confidential/votes-1/ballots.parquet")
        _, counted = read_ballots_file(kept)
        assert isinstance(counted, Ballots)
        assert np.array_equal(counted.unpacked(), ballots(5) if name == "low" else 0 * ballots(5))


@pytest.mark.slow
def test_classes_are_counted_by_gnmax():
    chosen = np.random.default_rng(1).integers(0, 3, (15, 1)) * np.ones((1, 120), dtype=int)
    file = write_ballots("classes.parquet", chosen, column="class", names=("a", "b", "c"))
    done = vote(file, "--name", "classes", "--blocks", "2", "--json")
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
        pytest.param(("--mechanism", "powerset"), marks=pytest.mark.slow),
        ("--mechanism", "top_m", "--limit", "1"),
        ("--release", "counts", "--mechanism", "tau_l2", "--limit", "1.2"),
        pytest.param(("--mechanism", "tau_l2", "--limit", "1.2"), marks=pytest.mark.slow),
        pytest.param(
            ("--mechanism", "tau_l1", "--limit", "1.5", "--noises", "1"), marks=pytest.mark.slow
        ),
        ("--agreement", "0.55,0.8,0.99", "--epsilon", "8"),
        ("--threshold", "6", "--threshold-sigma", "9", "--unit", "group"),
    ],
    ids=lambda one: one[1],
)
def test_every_mechanism_releases_and_is_verified(options):
    file = write_ballots("b.parquet", ballots(6, queries=4))
    done = vote(file, "--name", "any", *options)
    assert done.returncode == 0, done
    found = checked("any")
    assert found.returncode == 0, found
    labels = np.array(pq.read_table(LABELS_OF.format("any", 1))["label"].to_pylist())
    assert labels.shape == (4, LABELS)
    assert set(np.unique(labels)) <= (
        {-1, 0, 1} if options[0] in ("--threshold", "--agreement") else {0, 1}
    )


def test_an_earlier_account_counts_in_the_promise(account, monkeypatch):
    monkeypatch.chdir(account)
    alone = json.loads(vote("3.parquet", "--json", "--epsilon", "3").stdout)
    done = vote("3.parquet", "--json", "--epsilon", "3", "--name", "later", "--after", "clinic")
    after = json.loads(done.stdout)
    assert after["sigma"] > 1.2 * alone["sigma"]
    assert after["epsilon"] <= 3
    assert certificate("later")["before"] == "clinic"
    assert checked("later").returncode == 0
    said = sentence(vote("3.parquet", "--name", "much", "--after", "clinic", "--epsilon", "1"))
    assert DpalError.closing in said
    assert entries("much") == []
    last = vote("3.parquet", "--json", "--epsilon", "4", "--name", "last", "--after", "later")
    assert last.returncode == 0, last
    # Both later ones count it, one of them by way of the other.
    assert vote("1.parquet", "--name", "clinic").returncode == 0


def test_the_report_of_an_account_is_written_from_what_it_released(account, monkeypatch):
    monkeypatch.chdir(account)
    before = entries("clinic")
    done = call("report", "artifacts/clinic")
    assert (done.returncode, done.stdout) == (0, "artifacts/clinic/report.md\n"), done
    text = Path("artifacts/clinic/report.md").read_text()
    sealed = json.loads(Path("artifacts/clinic/certificate.json").read_text())
    assert sealed["digest"] in text
    for block in (1, 2):
        assert re.search(rf"votes-{block}/released\.parquet[ |]+20[ |]", text)
    assert "2 of 2 blocks" in text
    for name in ("report.html", "ledger.html"):
        page = sound(Path("artifacts/clinic", name).read_text(encoding="utf-8"))
        assert "teachers clinic" in page.text
        assert "--model" not in page.text  # there is none
    assert entries("clinic") == before


def test_an_account_that_released_nothing_has_no_report(account, tmp_path):
    shutil.copytree(account / "artifacts", tmp_path / "artifacts")
    for released_file in Path("artifacts/clinic").glob("votes-*/released.parquet"):
        released_file.unlink()
    assert "released anything" in sentence(call("report", "artifacts/clinic"))


@pytest.mark.parametrize("asked", ["predict artifacts/clinic 1.parquet --to o.parquet", "card"])
def test_an_account_has_no_model_and_nobody_is_told_to_finish_it(account, monkeypatch, asked):
    monkeypatch.chdir(account)
    command = asked if "predict" in asked else f"{asked} artifacts/clinic"
    said = sentence(call(*command.split()))
    assert "no model" in said and "finish" not in said
    assert not Path("o.parquet").exists()


@pytest.mark.parametrize("phase", [(), ("--phase", "0")])
def test_an_account_is_not_restored_from_dvc(account, monkeypatch, phase):
    monkeypatch.chdir(account)
    before = list(files_below(Path("artifacts")))
    said = sentence(call("restore", "artifacts/clinic", *phase))
    assert "clinic is an" in said
    assert "backup" in said
    assert list(files_below(Path("artifacts"))) == before


@pytest.mark.slow
def test_an_account_that_was_charged_by_counts_goes_on(monkeypatch):
    """As versions up to 0.2.0 opened it: its plan, its charges and its certificate stay."""
    rng = np.random.default_rng(5)
    files = [
        write_ballots(f"{at}.parquet", rng.integers(0, 4, (6, 9)), column="class") for at in (1, 2)
    ]
    with monkeypatch.context() as before:
        before.setattr("dpal.runs.vote_request.charged_by_answers", lambda folder: False)
        first = vote(files[0], "--name", "old", "--blocks", "2")
    held = certificate("old")["plan"]
    second = vote(files[1], "--name", "old", "--blocks", "2")
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert certificate("old")["plan"] == held
    charged = {release["mechanism"] for release in certificate("old")["released"]}
    assert charged == {"noisy_votes"}
    assert checked("old").returncode == 0
    new = vote(files[0], "--name", "new", "--after", "old", "--epsilon", "8")
    assert new.returncode == 0, new
    assert "by_answers" in certificate("new")["plan"]["content"]["spec"]["rule"]
    assert checked("new").returncode == 0


@pytest.mark.slow
def test_a_guess_is_paid_for_and_counts_in_the_promise():
    rng = np.random.default_rng(4)
    chosen = (rng.random((60, 120)) < 0.03).astype(int)
    file = write_ballots("classes.parquet", chosen, column="class", names=("a", "b", "c"))
    paid = vote(file, "--explain", "--pay", "0.9", "--name", "guess", "--epsilon", "6", "--json")
    assert paid.returncode == 0, paid
    said = json.loads(paid.stdout)
    assert 0.8 < said["paid"]["epsilon"] <= 0.9
    assert said["bound"] is not None
    assert said["sigma"] < 0.8 * said["plain_sigma"]
    assert said["agreement"]["leave"]["0"] >= 0.99
    shares = ",".join(map(str, said["agreement"]["shares"]))
    options = ("--after", "guess", "--agreement", shares, "--epsilon", "6")
    done = vote(file, "--name", "told", *options, "--json")
    assert done.returncode == 0, done
    released = json.loads(done.stdout)
    assert released["sigma"] == said["sigma"]
    assert released["epsilon"] <= 6
    assert checked("told").returncode == 0


def test_unanswered_queries_cost_less_and_asking_stops_by_what_was_released():
    chosen = np.tile(np.arange(120) % 3, (60, 1))  # divided: hardly any query is answered
    file = write_ballots("classes.parquet", chosen, column="class", names=("a", "b", "c"))
    options = ("--sigma", "4", "--threshold", "100", "--threshold-sigma", "12", "--epsilon", "2")
    plain = vote(file, *options)
    assert plain.returncode == 2  # all of them answered would cost more
    done = vote(file, "--name", "rare", *options, "--answered-share", "0.02", "--json")
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    assert said["epsilon"] <= 2
    assert said["charges"]["answered"] > 3 * said["charges"]["unanswered"]
    released = pq.read_table(LABELS_OF.format("rare", 1))
    assert 30 < int(released.schema.metadata[b"asked"]) <= 60
    assert checked("rare").returncode == 0


def test_teachers_that_promise_less_are_shown_and_verified_in_the_account():
    file = write_ballots("ballots.parquet", ballots(1, queries=60))
    told = {"teacher": ["t0", "t3"], "epsilon": [1.0, 1.0]}
    pq.write_table(pa.table(told), "budgets.parquet")
    options = ("--budgets", "budgets.parquet")
    for view in (("--explain",), ("--sweep", "sigma=9,10"), ("--private-figures",)):
        assert vote(file, *options, *view).returncode == 2
    shown = vote(file, *options, "--json")
    assert shown.returncode == 0, shown
    (budget,) = json.loads(shown.stdout)["budgets"]
    assert budget["teachers"] == [0, 3]
    done = vote(file, "--name", "less", *options)
    assert done.returncode == 0, done
    assert certificate("less")["budgets"][0]["queries"] == budget["queries"]
    assert checked("less").returncode == 0
