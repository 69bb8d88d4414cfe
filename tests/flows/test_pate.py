"""Private voting as a whole on a real Prefect server, on small data with several labels."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest

from dpal.canonical import file_digest
from dpal.config.pate import parse_pate
from dpal.data.labeling_state import labels_of
from dpal.data.partitions import read_parts
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.ballot_and_label_tables import read_released
from dpal.runs.prepare_ensemble import plan_ensemble
from dpal.runs.vote_account import release_ballot_block
from dpal.voting.ballots import Ballots
from tests.flows.calling import call
from tests.flows.leaks import files_below, naming
from tests.flows.voting import (
    NAMES,
    TEACHERS,
    certificate,
    checked,
    entries,
    files_of,
    mode_of,
    releases,
    settings,
    write_campaign,
    write_settings,
)
from tests.flows.voting import voted as voted  # a fixture
from tests.reports.pages import sound

HOME = Path("artifacts/votes")


@pytest.fixture(autouse=True)
def _there(voted, monkeypatch, orchestrated):
    monkeypatch.chdir(voted[0])


def run_of_mlflow():
    mlflow.set_tracking_uri(f"sqlite:///{Path('artifacts/mlflow.sqlite').resolve()}")
    found = mlflow.search_runs(
        experiment_names=["dpal"],
        filter_string="tags.`dpal.campaign` = 'votes'",
        output_format="list",
    )
    assert len(found) == 1
    return found[0]


def test_all_blocks_are_held_before_anything_is_trained_and_one_is_released():
    hold, reserve, commit = entries("votes")[:3]
    assert [one.kind for one in (hold, reserve, commit)] == [
        EntryKind.HOLD,
        EntryKind.RESERVE,
        EntryKind.COMMIT,
    ]
    blocks = [f"votes/{at}" for at in range(1, 8)]
    assert [one["release"] for one in hold.body["releases"]] == blocks
    assert reserve.release == commit.release == "votes/1"
    trained = [one.stat().st_mtime for one in HOME.glob("confidential/teachers/teacher-*")]
    assert len(trained) == TEACHERS
    assert (HOME / "pool.salt").stat().st_mtime < min(trained)
    cast = (HOME / "confidential/votes-1/ballots.parquet").stat().st_mtime
    assert max(trained) < cast < (HOME / "votes-1/released.parquet").stat().st_mtime


def test_running_again_changes_nothing_and_draws_nothing(voted):
    folder, first, again, before = voted
    assert first.stdout == again.stdout
    after = {path: path.read_bytes() for path in files_of(folder) if path in before}
    changed = {path.name for path, content in before.items() if after[path] != content}
    assert changed == set()
    assert releases("votes").count("votes/1") == 1


def test_the_certificate_covers_every_block_and_the_student():
    document = certificate("votes")
    assert document["blocks"] == [30, *[20] * 6]
    assert document["promise"]["unit"] == "record"
    assert document["epsilon"]["rdp"] <= 8 < document["epsilon"]["pld"]
    assert document["model"]["sha256"] == file_digest(HOME / "phase-0/model.safetensors")
    done = checked("votes", "--model", str(HOME / "phase-0/model.safetensors"))
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout
    other = checked("votes", "--model", str(HOME / "confidential/teachers/teacher-0.safetensors"))
    assert other.returncode == 1
    assert call("ledger", "verify", str(HOME)).returncode == 0


def test_teachers_parts_and_ballots_stay_inside():
    inside = [one for one in HOME.rglob("*") if "confidential" in one.parts]
    for path in [HOME, HOME / "pool.salt", *inside]:
        # What DVC links to its cache is read-only.
        assert mode_of(path) in ((0o700,) if path.is_dir() else (0o600, 0o400)), path
    private = [*HOME.glob("confidential/teachers/*"), *HOME.glob("confidential/votes-*/*")]
    assert len(private) >= TEACHERS + 2
    digests = {file_digest(one) for one in private}
    outside = [one for one in files_below(Path("artifacts")) if one.is_file()
               and one not in inside]  # fmt: skip
    assert not digests & {file_digest(one) for one in outside}  # nor in the cache of DVC
    weights = [one.read_bytes()[-64:] for one in HOME.glob("confidential/teachers/teacher-*")]
    for path in outside:
        assert not any(one in path.read_bytes() for one in weights), path
    assert {one.name for one in (HOME / "phase-0").iterdir()} == {
        "manifest.json",
        "metrics.json",
        "model.safetensors",
    }


@pytest.mark.slow
def test_no_private_record_is_named_outside(prefect_home):
    secrets = [f"secret-{at:05d}" for at in range(240)]
    holders = naming(secrets, files_below(Path("artifacts"), prefect_home))
    assert holders == {HOME / "confidential/teachers/parts.parquet"}


def test_what_is_released_is_about_public_records():
    table = pq.read_table(HOME / "votes-1/released.parquet")
    known = pq.read_table("public.parquet", columns=["id"])["id"].to_pylist()
    assert len(table) == 30
    assert set(table["id"].to_pylist()) <= set(known)
    labels = np.array(table["label"].to_pylist())
    assert labels.shape == (30, len(NAMES))
    assert set(np.unique(labels)) <= {0, 1}


def test_parts_are_disjoint_and_of_one_size():
    parts = read_parts(HOME / "confidential/teachers/parts.parquet")
    assert np.bincount(parts).tolist() == [240 // TEACHERS] * TEACHERS


def test_mlflow_has_figures_promise_and_the_student():
    run = run_of_mlflow()
    tags = run.data.tags
    assert tags["dpal.kind"] == "pate"
    assert (tags["epsilon"], tags["delta"]) == ("8", "0.0001")
    assert (tags["adjacency"], tags["unit"]) == ("zero_out", "record")
    assert tags["dpal.certificate"] == certificate("votes")["digest"]
    assert tags["dpal.finished"] == "true"
    metrics = CampaignFolder(HOME).finished_phases()[0]
    for key in ("validation_macro_auc", "campaign_epsilon", "labels", "released_right"):
        assert run.data.metrics[key] == pytest.approx(metrics[key])
    for key in ("pate.auc", "pate.bac", "pate.acc", "pate.map"):
        assert 0 <= run.data.metrics[key] <= 1
    result = call("verify", "--model", "models:/dpal-votes/1", "--key", "own")
    assert result.returncode == 0, result.stdout + result.stderr


def test_methods_have_figures_of_every_label():
    methods = json.loads((HOME / "methods.json").read_text(encoding="utf-8"))
    assert list(methods) == ["pate"]
    assert set(methods["pate"]["labels"]) == set(NAMES)
    assert methods["pate"]["epsilon"] <= 8
    assert set(methods["pate"]["averages"]) >= {"acc", "bac", "auc", "map", "cf1_mean", "of1"}


def test_the_report_says_promise_accountant_and_what_is_not_protected():
    text = (HOME / "report.md").read_text(encoding="utf-8")
    summary = CampaignFolder(HOME).read_record()["plan"]
    for words in (
        "epsilon 8 at delta 0.0001",
        "zero_out",
        "ballot replaced",
        f"{summary['epsilon']:.4f}",
        f"{summary['epsilon_oracle']:.4f}",
        "rdp",
        "150 in 7 blocks",
        "not protect",
        "their released labels",
        "dpal verify certificate.json",
        certificate("votes")["digest"],
        *NAMES,
    ):
        assert words in text, words
    for name in ("labels-auc.png", "labels-bac.png"):
        assert (HOME / "figures" / name).stat().st_size > 5_000
    report = call("report", str(HOME))
    assert report.returncode == 0
    assert (HOME / "report.md").read_text(encoding="utf-8") == text


def test_report_and_ledger_are_signed_pages_that_open_without_a_server():
    document = certificate("votes")
    for name, heading in (
        ("report.html", "protect"),
        ("ledger.html", "Timeline"),
    ):
        page = sound((HOME / name).read_text(encoding="utf-8"))
        assert "Private voting votes" in page.text
        assert "epsilon 8 at delta 0.0001" in page.text
        assert heading in page.text
        assert document["digest"] in page.text
        assert checked_page(HOME / name) == 0
    page = sound((HOME / "report.html").read_text(encoding="utf-8"))
    shown = [str(one["alt"]) for one in page.named("img")]
    assert [alt.partition(" ")[0] for alt in shown] == ["AUC", "BAC"]
    assert "restore artifacts/votes --phase 0" in page.text
    ledger = sound((HOME / "ledger.html").read_text(encoding="utf-8"))
    assert "1 of 7 planned" in ledger.text
    run = run_of_mlflow().info.run_id
    for name in ("report.html", "ledger.html", "report.dsse.json"):
        there = mlflow.artifacts.download_artifacts(f"runs:/{run}/{name}")
        assert Path(there).read_bytes() == (HOME / name).read_bytes()


def checked_page(page: Path) -> int:
    done = call("verify", str(page), "--ledger", str(HOME), "--key", "own")
    return done.returncode


def test_commands_know_private_voting():
    assert "votes" in call("status").stdout
    shown = call("plan", "votes.yaml", "--json")
    assert json.loads(shown.stdout)["plan_digest"] == certificate("votes")["plan"]["digest"]
    assert "votes/1" in call("ledger", "show", str(HOME)).stdout


def test_settings_do_not_change_under_a_name():
    file = write_settings("votes", voting__queries=40)
    try:
        done = call("run", file)
    finally:
        write_settings("votes")
    assert done.returncode == 2
    assert "another plan (its" in done.stderr
    assert len(entries("votes")) == 3


# From here on teachers are asked by campaigns; what they had released before is looked at above.


def test_what_dvc_lacks_for_its_remote_stops_it_before_anything_is_held(monkeypatch):
    monkeypatch.setattr("tasks.version_with_dvc.find_spec", lambda name: None)
    file = write_settings("pushed", runtime={"dvc_remote": "oss://bucket/remote"})
    done = call("run", file)
    assert done.returncode == 2, done
    assert "pip install dvc-oss" in done.stderr.splitlines()[-1]
    assert entries("pushed") == []


@pytest.mark.slow
def test_a_campaign_that_cannot_have_their_labels_starts_nothing():
    for changes, says in (
        ({"data": {"pool": "private.parquet", "validation": "validation.parquet"}},
         "cannot label"),
        ({"schedule": {"initial": 130, "queries": [], "batch_size": 65, "epochs_per_phase": 1}},
         "6 are left"),
    ):  # fmt: skip
        done = call("run", write_campaign("refused", **changes))
        assert done.returncode == 2, done
        assert says in done.stderr.splitlines()[-1]
        assert entries("refused") == []
        assert not Path("artifacts/refused/confidential").exists()
    assert releases("votes") == ["votes/1"]


@pytest.fixture(scope="module")
def labeled(voted):
    """A campaign that buys 30 and 15 labels from the teachers, in blocks of 20."""
    file = write_campaign("site")
    done = call("run", file)
    assert done.returncode == 0, done
    return done


@pytest.mark.slow
def test_their_labels_are_charged_to_both_accounts_of_one_ledger(labeled):
    assert releases("votes") == releases("votes", EntryKind.COMMIT)
    assert releases("votes") == [f"votes/{at}" for at in (1, 2, 3, 4)]
    assert releases("site", EntryKind.COMMIT) == releases("site")
    assert "phase-0/training" in releases("site")
    assert checked("votes").returncode == 0
    done = checked("site")
    assert done.returncode == 0, done.stdout
    assert call("ledger", "verify", "artifacts").returncode == 0


@pytest.mark.slow
def test_labels_of_private_records_stay_inside(labeled):
    bought = labels_of(CampaignFolder(Path("artifacts/site")).phase(1).pool)
    assert len(bought) == 45
    released: dict[str, tuple[int, ...]] = {}
    for block in (2, 3, 4):
        folder = HOME / "confidential" / f"votes-{block}"
        assert not (HOME / f"votes-{block}").exists()
        table = pq.read_table(folder / "released.parquet")
        assert len(table.schema.metadata[b"dpal.salt"]) == 32  # the ledger shows its digest
        rows = zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True)
        released |= {name: tuple(label) for name, label in rows}
    assert released == bought
    sites = [f"site-{at:05d}" for at in range(200)]
    holders = naming(sites, files_below(Path("artifacts")))
    assert holders
    cache = Path("artifacts/.dvc/cache").resolve()  # of files below confidential/
    assert all("confidential" in one.parts or cache in one.resolve().parents for one in holders)
    # How many were asked in a block is no one's to see, either.
    assert "votes-2" not in (HOME / "campaign.json").read_text(encoding="utf-8")
    assert "5 queries released" not in labeled.stderr


@pytest.mark.slow
def test_running_the_campaign_again_asks_nobody(labeled):
    again = call("run", "site.yaml")
    assert again.returncode == 0, again
    assert releases("votes") == [f"votes/{at}" for at in (1, 2, 3, 4)]


def test_a_block_without_a_record_is_charged_and_looks_like_any_other():
    """A hidden selection may be smaller than planned; the ledger must not show it."""
    before = len(releases("votes"))
    ensemble = plan_ensemble(parse_pate(settings("votes")))
    none = Ballots.of(np.zeros((0, TEACHERS, len(NAMES))))
    found = []
    for number in range(2):
        with lock_folder(ensemble.folder.root):
            path = release_ballot_block(
                ensemble.account, [], none, purpose=f"x/{number}", confidential=True
            )
        ids, labels = read_released(path)
        assert (ids, labels.size) == ([], 0)
        found.append(file_digest(path))
    assert found[0] != found[1]
    assert len(releases("votes")) == before + 2


@pytest.mark.slow
def test_the_registered_student_is_verified_also_after_others_asked(labeled):
    """Its certificate is older than what they asked, and covers every block that was held."""
    given = ("--ledger", str(HOME), "--key", "own")
    done = call("verify", "--model", "models:/dpal-votes/1", *given)
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout
