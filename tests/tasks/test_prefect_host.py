"""What Prefect gives to a run, and that a run without a server is not held up by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.blocks.system import Secret
from prefect.settings import PREFECT_API_URL, temporary_settings

from dpal.config.campaign import parse_config
from dpal.config.runtime import RuntimeConfig
from dpal.errors import RunnerError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.host import Host
from tasks.prefect_host import PrefectHost
from tests.conftest import small_values


def test_parts_run_here_one_by_one_as_they_are_wanted():
    done: list[int] = []

    def work(part: int) -> int:
        done.append(part)
        return 2 * part

    results = PrefectHost().run_parts(work, [1, 2, 3], RuntimeConfig())
    assert next(results) == 2
    assert done == [1]
    assert list(results) == [4, 6]


def test_workers_are_looked_for_when_they_are_needed_and_a_plain_process_has_none():
    wanting = parse_config(small_values(runtime={"training_pool": "gpu"})).runtime
    PrefectHost().require_runnable(wanting)
    with pytest.raises(RunnerError, match=r"runtime\.training_pool"):
        Host().require_runnable(wanting)


def test_without_a_server_there_are_no_secrets():
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert PrefectHost().secret("label-studio") is None


@pytest.mark.usefixtures("orchestrated")
def test_a_secret_is_a_block_of_the_server():
    Secret(value="a word").save("of-the-tests", overwrite=True)
    assert PrefectHost().secret("of-the-tests") == "a word"
    assert PrefectHost().secret("of-nobody") is None


def test_a_phase_that_nobody_waits_for_has_no_form(tmp_path: Path):
    files = CampaignFolder(tmp_path / "small").phase(0)
    assert PrefectHost().form_values(files) is None
    PrefectHost().stop_waiting(files)  # nothing to take off a server
