"""Differentially private active learning whose promise is checked, kept and recorded.

>>> import dpal
>>> config = dpal.settings({"name": "clinic", "privacy": {"epsilon": 3}})
>>> config.privacy.epsilon
3.0

`dpal.plan(config)` certifies a plan and releases nothing, `dpal.run(config)` runs it or goes on
with it, `dpal.released_model(folder)` is where its weights are, `dpal.verify(folder)` checks what
came of it, `dpal.account(folder)` says what was spent, and `dpal.vote(ballots, ...)` turns ballots
of teachers into labels. Each writes the same ledger and the same certificate as the command of its
name; none needs Prefect, MLflow or DVC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpal.api import account, plan, released_model, run, settings, verify, vote
    from dpal.errors import DpalError

__version__ = "0.2.0"
__all__ = ["DpalError", "account", "plan", "released_model", "run", "settings", "verify", "vote"]

_DEFINED_IN = {"DpalError": "dpal.errors"}


def __getattr__(name: str) -> Any:
    """Imports what is asked for: `import dpal` alone loads nothing heavy."""
    if name not in __all__:
        raise AttributeError(f"module 'dpal' has no attribute {name!r}")
    return getattr(import_module(_DEFINED_IN.get(name, "dpal.api")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
