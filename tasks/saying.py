"""What a person is told while a campaign runs."""

from __future__ import annotations

import logging
from contextlib import suppress

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger


def say(message: str) -> None:
    """Tells a person what happens, in the terminal and on the Prefect page. Public facts only."""
    logging.getLogger("dpal").info(message)
    with suppress(MissingContextError):
        get_run_logger().info(message)


def say_here(message: str) -> None:
    """Tells whoever runs this process, who may see the records, and not the Prefect page."""
    logging.getLogger("dpal").info(message)
