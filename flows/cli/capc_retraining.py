"""Asking sites and learning from their answers in the terminal, which starts what that needs."""

from __future__ import annotations

from dpal.config.capc_retraining import RetrainingConfig
from dpal.errors import TrainingStopped
from flows.cli.orchestrator import needing_prefect, starting_prefect
from flows.cli.terminal import err, out, stop_at_once_on_interrupt


def retrain_here(config: RetrainingConfig) -> None:
    """Runs the flow in this process; says what came of it, and prints its folder last."""
    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        from prefect.exceptions import CancelledRun

        from flows.capc import buy_and_learn
    try:
        with needing_prefect():
            done = buy_and_learn(config, return_state=True)
            folder = done.result()
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    out.print(str(done.message), markup=False)
    print(folder)  # noqa: T201  plain, for scripts
