"""Runs that go in one piece: their tasks, their reports and their page, on the smallest kind."""

from __future__ import annotations

import pytest
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.verify import verify_certificate
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.kinds import KINDS
from tasks.boundary import flow
from tasks.generic_page import tell_run, tell_run_end
from tasks.generic_steps import advance, certify, prepare, tracked
from tasks.write_reports import write_report
from tests.conftest import write_blobs


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Settings of a kind that other tests do not know of."""
    from tests.runs import toy

    monkeypatch.setitem(KINDS, "mean", toy.MEAN)
    monkeypatch.chdir(tmp_path)
    pool = write_blobs(tmp_path / "pool.parquet", 400, seed=1, labeled=False)
    yield toy.MeanConfig(name="toy", pool=pool)
    monkeypatch.undo()
    KINDS.pop("mean", None)


def test_tasks_bring_a_run_to_its_certificate_and_its_reports(config):
    run = prepare.fn(config)
    assert not run.folder.root.exists(), "a plan writes nothing"
    with lock_folder(run.folder.root):
        run = advance.fn(run)
        drawn = run.released()[0].joinpath("model.safetensors").read_bytes()
        certify.fn(run)
    write_report.fn(run)
    document = read_certificate(run.folder.certificate.read_text(encoding="utf-8"))
    assert not any_failed(verify_certificate(document))
    assert run.folder.report.is_file() and run.folder.report_page.is_file()
    assert tracked(run).parameters == {"sigma": config.sigma}
    spent = f"epsilon {run.certified.epsilon:.4f} of 2"
    assert tell_run_end(run) == f"{spent} (delta 1e-05, zero_out, record)"
    with lock_folder(run.folder.root):
        again = advance.fn(prepare.fn(config))
    assert again.released()[0].joinpath("model.safetensors").read_bytes() == drawn, (
        "nothing is drawn twice"
    )


@pytest.mark.usefixtures("orchestrated")
def test_the_page_of_a_run_has_one_story_that_is_kept_up_to_date(config):
    pages = []

    @flow()
    def led() -> None:
        run = prepare(config)
        tell_run(run, "it is planned.")
        tell_run(run, "it is planned.")
        with lock_folder(run.folder.root):
            pages.append((flow_run.get_id(), tell_run_end(advance(run))))

    led()
    ((number, last),) = pages
    with get_client(sync_client=True) as client:
        wanted = {"artifacts": {"flow_run_id": {"any_": [number]}}}
        (shown,) = client.request("POST", "/artifacts/filter", json=wanted).json()
    assert shown["key"] == "mean-toy"
    assert last in shown["data"]
    assert "it is planned." not in shown["data"]
