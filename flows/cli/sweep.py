"""`dpal run --sweep`: one run after the other over values, then tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpal.errors import (
    BudgetExceeded,
    ConfigError,
    DataBudgetExceeded,
    ParameterError,
    PlanRejected,
    TrainingStopped,
)
from dpal.runs.kinds import kind_in
from dpal.runs.sweeps import Member, members
from flows.cli.run_in_terminal import flow_of, show_results
from flows.cli.sweep_values import sweep_values
from flows.cli.terminal import err, out, stop_at_once_on_interrupt

_REFUSALS = (BudgetExceeded, DataBudgetExceeded, ParameterError, PlanRejected)


def sweep_here(values: dict[str, Any], sweep: Sequence[str], repeat: Sequence[str]) -> None:
    """Runs settings over all combinations of values. Prints the sweep's folder last.

    What was run before is not run again; a combination that is impossible is listed with the
    reason. Raises what stops a single run.
    """
    if not sweep:
        raise ConfigError("--repeat says what a --sweep is averaged over; give a --sweep, too")
    axes, repeated = ([sweep_values(text) for text in texts] for texts in (sweep, repeat))
    kind = kind_in(values)
    base, wanted = kind.parse(values), list(members(values, axes, repeated))
    err.print(
        f"{len(wanted)} runs, each under a promise of its own; what they cost the same records "
        "adds up",
        soft_wrap=True,
    )
    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    finished, refused = [], []
    for number, member in enumerate(wanted, 1):
        told = ", ".join(f"{key}={value}" for key, value in
                         {**member.swept, **member.repeated}.items())  # fmt: skip
        err.print(f"[{number}/{len(wanted)}] {told}", markup=False)
        if (reason := _run(member)) is None:
            finished.append(member)
        else:
            refused.append({**member.said(), "refused": reason})
    folder = base.runtime.artifacts / base.name
    show_results(kind.use_cases().write_sweep(folder, finished, refused))
    for refusal in refused:
        out.print(f"not run: {refusal['swept']}: {refusal['refused']}", markup=False)
    print(folder)  # noqa: T201  plain, for scripts


def _run(member: Member) -> str | None:
    """Runs one, unless it is done; returns why it cannot be, None where it was."""
    if member.folder.certificate.is_file():
        return None
    from flows.cli.orchestrator import needing_prefect, starting_prefect

    with starting_prefect():
        from prefect.exceptions import CancelledRun, Pause

        flow = flow_of(member.config)
    try:
        with needing_prefect():
            flow(member.config)
    except _REFUSALS as refused:
        return str(refused)
    except Pause as waiting:
        return f"waits for labels: {waiting}"
    except CancelledRun as stopped:
        raise TrainingStopped(str(stopped)) from None
    return None
