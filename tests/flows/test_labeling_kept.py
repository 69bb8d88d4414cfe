"""How people labeled is shown to who runs the labeling, and is in nothing that leaves.

Three people label the one query of a campaign in the hidden mode, and then all that it left
behind is searched for how often they agreed, and how many answers there were.
"""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpal.data.labeling_state import read_selection
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.labeling_figures import read_labeling_figures
from dpal.reports.validation_figures import percent
from tests.conftest import flows_at, write_blobs, write_config
from tests.flows.calling import call, sentence
from tests.flows.leaks import counted, files_below, naming, planned_numbers, text_of
from tests.flows.test_hidden import READING, UNREADABLE, public_files

pytestmark = pytest.mark.slow
FOLDER = "artifacts/kept"
PEOPLE = ("zq-ann", "zq-bob", "zq-eve")


def answers_of_all(query: Path) -> Path:
    """Of every 7th record the last person says something else than the others."""
    with query.open(newline="", encoding="utf-8") as stream:
        ids = [row["id"] for row in csv.DictReader(stream)]
    answers = query.parent / "answers.csv"
    with answers.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["id", "label", "annotator"])
        for number, name in enumerate(ids):
            for person in PEOPLE:
                differs = number % 7 == 0 and person == PEOPLE[-1]
                rows.writerow([name, (number + differs) % 3, person])
    return answers


@pytest.fixture(scope="module")
def labeled(prefect_api, prefect_home, tmp_path_factory):
    place = tmp_path_factory.mktemp("kept")
    write_blobs(place / "pool.parquet", 6000, seed=1)
    write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(place)
        write_config(
            place / "c.yaml",
            name="kept",
            strategy="naive",
            privacy={"selection": "hidden", "secret_draw": True},
            schedule={"initial": 1300, "queries": [], "batch_size": 250, "epochs_per_phase": 1},
            labeler={"kind": "file"},
            runtime__dvc_remote="remote",
        )
        asked, folder = call("run", "c.yaml"), CampaignFolder(place / FOLDER)
        early = [
            call("label", FOLDER, *words, "--agreement")
            for words in ([], ["answers.csv"], ["--clean"])
        ]
        files = folder.phase(0)
        told = call("label", FOLDER, str(answers_of_all(files.query / "query.csv")))
        assert told.returncode == 0, told
        reading = [
            call(*(word.replace("artifacts/unseen", FOLDER) for word in words)) for words in READING
        ]
        again = call("label", FOLDER, "--agreement")
    assert [one.returncode for one in (*reading, again)] == [0] * (len(READING) + 1)
    return SimpleNamespace(
        place=place,
        folder=folder,
        selected=len(read_selection(files.selection)),
        figures=read_labeling_figures(files.labeling),
        early=early,
        shown=(told.stdout, again.stdout),
        told="\n".join(one.stdout + one.stderr for one in (asked, *reading)),
        prefect=prefect_home,
    )


def secrets_of(labeled) -> list[str]:
    """Figures as files and tables have them, and who the people are."""
    shares = [labeled.figures.unanimous, labeled.figures.pairwise, labeled.figures.kappa]
    written = [repr(share)[:8] for share in shares]  # cut and not rounded, as in longer ones
    return [*PEOPLE, *written, percent(shares[0]), percent(shares[1]), "labeling.json"]


def test_whoever_runs_it_sees_how_often_people_agreed(labeled):
    figures, records = labeled.figures, labeled.selected
    disputed = (records + 6) // 7
    assert (figures.records, figures.compared, figures.annotators) == (records, records, 3)
    assert figures.unanimous == pytest.approx(1 - disputed / records)
    assert figures.pairwise == pytest.approx(1 - 2 / 3 * disputed / records)
    assert figures.timed == 0  # files have no times
    for shown in labeled.shown:
        assert percent(figures.unanimous) in shown
        assert f"{figures.kappa:.2f}" in shown
        assert counted(records, shown)


def test_before_people_answered_there_is_nothing_to_see(labeled):
    nothing, *refused = map(sentence, labeled.early)
    assert "kept" in nothing
    assert all("--agreement" in told for told in refused)  # which does nothing else


def test_the_report_says_why_it_is_silent(labeled):
    for path in (labeled.folder.report, labeled.folder.report_page):
        assert "dpal label kept --agreement" in path.read_text(encoding="utf-8")


def test_it_is_in_no_file_that_may_be_seen(labeled):
    searched = list(public_files(labeled))
    assert {path.name for path in searched} >= {
        "ledger.sqlite", "mlflow.sqlite", "report.md", "report.html", "ledger.html",
        "certificate.json", "campaign.json", "phase-0.dvc", "model_card.md", "ledger.parquet",
    }  # fmt: skip
    assert naming(secrets_of(labeled), searched) == set()
    assert labeled.folder.phase(0).labeling not in searched
    for share in secrets_of(labeled)[len(PEOPLE) : len(PEOPLE) + 3]:  # the search finds them
        assert naming([share], [labeled.folder.phase(0).labeling])


def test_prefect_and_other_commands_are_told_nothing_of_it(labeled):
    assert naming(secrets_of(labeled), files_below(labeled.prefect)) == set()
    assert naming(["kept"], [labeled.prefect / "prefect.db"])
    assert not any(secret in labeled.told for secret in secrets_of(labeled))


def test_how_many_answers_there_were_is_told_nowhere(labeled):
    """In the hidden mode they say how many were selected."""
    records, public = labeled.selected, planned_numbers(labeled.folder)
    texts = [text_of(path) for path in public_files(labeled) if path.suffix not in UNREADABLE]
    for number in {records, 3 * records} - public:
        assert not any(counted(number, text) for text in [*texts, labeled.told]), number


def test_it_is_neither_versioned_nor_pushed(labeled):
    """DVC's cache holds what is confidential of a phase; this is not even there."""
    assert naming(PEOPLE, files_below(labeled.place / "remote", labeled.place / "artifacts")) == {
        labeled.folder.phase(0).query / "answers.csv"
    }
    cached = labeled.place / "artifacts" / ".dvc"
    assert naming([*secrets_of(labeled), '"kappa"'], files_below(cached)) == set()
