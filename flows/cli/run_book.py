"""Making a book in the terminal, which starts what that needs."""

from __future__ import annotations

from typing import Any

from dpal.errors import TrainingStopped
from flows.cli.orchestrator import needing_prefect, starting_prefect


def make_book_here(*wanted: Any) -> None:
    """Runs the flow of that name in this process; takes what it takes, in its order."""
    with starting_prefect():
        from prefect.exceptions import CancelledRun

        from flows.book import make_book
    try:
        with needing_prefect():
            make_book(*wanted)
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
