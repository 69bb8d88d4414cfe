"""The best phase is the one that a campaign releases, and a flat curve ends it."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dpal
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.canonical import file_digest
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate, sealed_certificate, to_text
from dpal.config.campaign import RuntimeConfig
from dpal.config.runtime import RunConfig
from dpal.errors import DataError, LedgerError, NotAllowed
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit, data_set
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.privacy import Adjacency, Unit
from dpal.runs import campaign_use_cases, write_certificate
from dpal.runs.execute import end
from dpal.runs.host import Host
from dpal.runs.improvement_start_model import finished_folder
from dpal.runs.make_report import report_of
from dpal.runs.manage_data_sets import register_data_set
from dpal.runs.plan_new_campaign import find_earlier
from dpal.runs.released_phase import is_complete, reached, released_phase, stopped_early
from tests.conftest import write_blobs
from tests.runs.misled import BEST, BOUGHT, SCHEDULE, Leaving, Misled, stopping, worsening

LEDGER = Path("artifacts/ledger.sqlite")


class Limited(Host):
    """Uses no settings of another run."""

    is_limited = True

    def require_allowed(self, config: RunConfig) -> None:
        raise NotAllowed("data.pool", "pool.parquet", "data.pool: [pool.parquet]", "allow.yaml")


def entries_of(name: str = "small") -> list[Entry]:
    with closing(LedgerStore(LEDGER, create=False)) as store:
        return store.entries(name)


def end_of(name: str = "small") -> dict[str, Any]:
    return next(entry.body for entry in entries_of(name) if entry.kind is EntryKind.END)


def certificate_of(folder: CampaignFolder) -> dict[str, Any]:
    return read_certificate(folder.certificate.read_text(encoding="utf-8"))


def register() -> None:
    limit = Limit(
        filter=RenyiFilter.fitted(20.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    register_data_set("clinic", limit, [Path("pool.parquet")], RuntimeConfig())


def taken() -> float:
    """What all campaigns together have of the data set, in epsilon."""
    with closing(LedgerStore(LEDGER, create=False)) as store:
        registered = data_set(store.entries(), "clinic")
    return registered.blocks[0].epsilon_taken(registered.limit)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a campaign is finished whose last phase is worse; run again it releases nothing."""
    root = tmp_path_factory.mktemp("worse")
    write_blobs(root / "pool.parquet", 600, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        dpal.run(worsening(), labeler=Misled())
    return root


@pytest.fixture
def finished(worse: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignFolder:
    """The folder of that campaign, from where it is."""
    monkeypatch.chdir(worse)
    return CampaignFolder(Path("artifacts/small"))


ON_CLINIC = {"data__dataset": "clinic", "privacy": {"selection": "visible", "delta": 1e-5}}


def test_a_campaign_whose_last_phase_is_worse_releases_the_one_before(
    finished: CampaignFolder,
) -> None:
    folder = finished
    values = [phase["validation_accuracy"] for phase in folder.finished_phases()]
    assert max(values[0], values[2]) < values[1] - 0.1
    assert released_phase(folder) == BEST
    assert dpal.released_model(folder) == folder.phase(BEST).model
    assert certificate_of(folder)["model"] == {
        "release": f"phase-{BEST}/training",
        "file": f"phase-{BEST}/model.safetensors",
        "sha256": file_digest(folder.phase(BEST).model),
    }
    assert end_of()["validation"] == {"figure": "accuracy", "values": values}
    # All phases were released, and all are paid.
    assert [release["release"] for release in certificate_of(folder)["models"]] == [
        f"phase-{number}/training" for number in range(3)
    ]
    assert reached(folder)["campaign_epsilon"] == folder.finished_phases()[2]["campaign_epsilon"]
    for number in range(3):
        assert not any_failed(dpal.verify(folder, ledger=LEDGER, model=folder.phase(number).model))
    loss = folder.finished_phases()[2]
    assert loss["validation_records"] == 300
    share = values[2]  # of records that are right: none, now and then
    error = math.sqrt(share * (1 - share) / 300)
    assert loss["validation_standard_error"] == pytest.approx(error, rel=0.01)
    assert f"phase-{BEST}/model.safetensors" in folder.report.read_text(encoding="utf-8")
    assert any("phase 2" in told.lower() for _, told in report_of(folder).verdict.points)
    before = folder.certificate.read_bytes()
    dpal.run(worsening(), labeler=Misled())  # everything is done
    assert folder.certificate.read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_last_releases_the_last() -> None:
    folder = dpal.run(worsening(release="last"), labeler=Misled())
    assert released_phase(folder) == 2
    assert certificate_of(folder)["model"]["file"] == "phase-2/model.safetensors"
    assert end_of().keys() == {"releases", "data"}  # as earlier versions wrote it


def test_what_was_released_stays_released_when_settings_change(finished: CampaignFolder) -> None:
    folder = finished
    before = folder.certificate.read_bytes()
    dpal.run(worsening(release="last"), labeler=Misled())
    assert (released_phase(folder), folder.certificate.read_bytes()) == (BEST, before)


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_campaign_of_an_earlier_version_keeps_its_last_model() -> None:
    folder = dpal.run(worsening(release="last"), labeler=Misled())
    record = folder.read_record()
    for later in ("release", "stop"):
        del record["config"][later]
    folder.write_record(record)
    assert released_phase(folder) == 2
    folder.certificate.unlink()  # as before the first certificate
    assert released_phase(folder) == 2
    dpal.run(worsening(), labeler=Misled())  # with the default of today
    assert certificate_of(folder)["model"]["file"] == "phase-2/model.safetensors"
    assert released_phase(folder) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_flat_curve_ends_the_campaign_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    labeler = Misled()
    folder = dpal.run(stopping(**ON_CLINIC), labeler=labeler)
    assert len(folder.finished_phases()) == 3
    assert labeler.asked == BOUGHT  # the last 60 labels were never bought
    held = next(entry for entry in entries_of() if entry.kind is EntryKind.HOLD)
    body = end_of()
    assert body["stop"] == {"patience": 1, "least_gain": 0.0}
    assert len(body["releases"]) == 3
    used, planned = (part["data"]["blocks"][0]["divergence"] for part in (body, held.body))
    assert used < planned
    assert not any_failed(dpal.verify(folder, ledger=LEDGER, model=dpal.released_model(folder)))
    assert is_complete(folder)
    assert stopped_early(folder)
    again = folder.certificate.read_bytes()
    dpal.run(stopping(**ON_CLINIC), labeler=Misled())
    dpal.run(stopping(**ON_CLINIC, stop=None), labeler=Misled())  # too late to go on
    assert folder.certificate.read_bytes() == again
    assert len(folder.finished_phases()) == 3
    # What flowed back is there for the next one, which may start from the released model.
    follows = worsening(
        **ON_CLINIC, name="second", start_from="small", schedule={**SCHEDULE, "queries": []}
    )
    earlier = find_earlier(follows)
    assert earlier is not None
    assert earlier.labels == BOUGHT
    assert earlier.model == dpal.released_model(folder)
    assert earlier.state == folder.phase(2).pool
    # Its weights and labels are the owner's as much as its files are.
    monkeypatch.setattr("dpal.runs.host._HOST", Limited())
    with pytest.raises(NotAllowed):
        find_earlier(follows)


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_all_that_a_stopped_campaign_could_release_counts_in_its_total() -> None:
    settings = stopping()
    planned = dpal.plan(settings).epsilon
    folder = dpal.run(settings, labeler=Misled())
    so_far = folder.finished_phases()[2]["campaign_epsilon"]
    certified = certificate_of(folder)["epsilon"]["pld"]
    assert so_far < certified - 0.01
    assert certified == pytest.approx(planned, abs=1e-6)
    assert reached(folder)["campaign_epsilon"] == certified
    assert dpal.account(folder).epsilon == pytest.approx(planned, abs=1e-6)
    assert finished_folder(settings.runtime, "small").root == folder.root


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_run_that_was_killed_before_its_end_decides_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    labeler = Misled()
    with monkeypatch.context() as dying:
        dying.setattr(campaign_use_cases, "end_campaign", kill)
        with pytest.raises(Killed):
            dpal.run(stopping(), labeler=labeler)
    assert EntryKind.END not in {entry.kind for entry in entries_of()}
    with monkeypatch.context() as dying:  # the end is written, and nothing after it
        dying.setattr(write_certificate, "certify", kill)
        with pytest.raises(Killed):
            dpal.run(stopping(), labeler=labeler)
    assert not is_complete(CampaignFolder(Path("artifacts/small")))
    ended = end_of()
    folder = dpal.run(stopping(), labeler=labeler)
    assert end_of() == ended
    assert labeler.asked == BOUGHT
    assert is_complete(folder)
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_phase_that_has_begun_is_finished_before_the_rule_is_asked() -> None:
    patient = stopping(stop=None)
    labeler = Misled()
    with pytest.raises(KeyboardInterrupt):
        dpal.run(patient, labeler=Leaving())
    assert Path("artifacts/small/confidential/phase-3/selection.parquet").is_file()
    folder = dpal.run(stopping(), labeler=labeler)
    assert len(folder.finished_phases()) == 4
    assert "stop" not in end_of()


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_campaign_that_a_person_ended_stays_closed_and_names_its_best() -> None:
    settings = stopping(stop=None)
    with pytest.raises(KeyboardInterrupt):
        dpal.run(settings, labeler=Leaving())
    folder = CampaignFolder(Path("artifacts/small"))
    assert released_phase(folder) == BEST  # so far
    end(folder)
    assert (
        certificate_of(folder)["model"]["file"]
        == f"phase-{released_phase(folder)}/model.safetensors"
    )
    assert released_phase(folder) == BEST
    assert not is_complete(folder)
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    with pytest.raises(LedgerError):
        dpal.run(settings, labeler=Misled())


def test_an_end_that_does_not_follow_from_its_figures_is_found(finished: CampaignFolder) -> None:
    document = certificate_of(finished)
    other = dict(document["models"][2])
    forged = sealed_certificate({**document, "model": other})
    Path("forged.json").write_text(to_text(forged), encoding="utf-8")
    assert any_failed(dpal.verify("forged.json"))


@pytest.mark.usefixtures("workplace")
def test_there_is_no_model_before_a_phase_is_finished() -> None:
    CampaignFolder(Path("artifacts/small")).root.mkdir(parents=True)
    with pytest.raises(DataError):
        dpal.released_model("artifacts/small")
