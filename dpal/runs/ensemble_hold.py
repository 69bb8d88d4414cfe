"""The plan of teachers in the ledger: held before one is trained, looked for wherever one is."""

from __future__ import annotations

from dpal.errors import LedgerError
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.vote_account import hold_votes


def hold_ensemble(ensemble: Ensemble) -> None:
    """Sets aside all that these teachers may ever be asked, before one is trained."""
    made_of = ensemble.pool.files_digest
    hold_votes(ensemble.account, made_of, data=ensemble.data, compared=ensemble.compared)


def require_held(ensemble: Ensemble) -> None:
    """Requires that teachers of these very records are held, on whatever machine this is.

    Raises:
      LedgerError: nothing is held under this name, or for other records or another plan.
    """
    if not ensemble.account.is_held():
        raise LedgerError.before_release(
            f"no account {ensemble.name} is held in this ledger, so its teachers are not trained "
            "here; let all machines share the artifacts folder and the ledger"
        )
    hold_ensemble(ensemble)
