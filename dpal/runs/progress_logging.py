"""What a person is told while a run goes on, through Python's logging.

Whoever runs the process reads the logger `dpal`, and may see the records. Public facts go to
`PAGE`, too, where an orchestrator adds a handler that shows them on its pages.
"""

from __future__ import annotations

import logging

PAGE = logging.getLogger("dpal.page")
PAGE.setLevel(logging.INFO)
PAGE.propagate = False
_HERE = logging.getLogger("dpal")


def notify(message: str) -> None:
    """Tells a person what happens, here and on the pages of an orchestrator.

    Args:
      message: public facts only.
    """
    _HERE.info(message)
    PAGE.info(message)


def notify_here(message: str) -> None:
    """Tells whoever runs this process, who may see the records, and nobody else."""
    _HERE.info(message)
