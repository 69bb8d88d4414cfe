"""Whoever talks to the Prefect server is handed out with the others that do."""

from __future__ import annotations

import pytest

from tests.shared_server import talks


def test_files_that_talk_to_the_server_are_known(request: pytest.FixtureRequest) -> None:
    """Of those that are collected here: all, in the whole suite."""
    talking = {
        item.nodeid.split("::")[0]
        for item in request.session.items
        if "prefect_api" in getattr(item, "fixturenames", ())
    }
    assert [file for file in talking if not talks(file)] == []


@pytest.mark.parametrize(
    ("file", "is_there"),
    [("tests/flows/test_allowing.py", True), ("tests/accounting/test_pld.py", False)],
)
def test_others_go_to_whoever_is_free(file: str, is_there: bool) -> None:
    assert talks(file) is is_there
