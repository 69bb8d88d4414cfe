"""What near_private will release, set aside before the start is trained; given back at the end."""

from __future__ import annotations

from dataclasses import replace

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.renyi_filter import Amount
from dpal.errors import LedgerError, ParameterError
from dpal.files.artifacts import RECORD
from dpal.files.atomic_writes import sweep
from dpal.ledger.data_set_accounts import Basis, BlockShare, data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.runs.improvement_context import Improving
from dpal.runs.plan_new_campaign import require_unregistered
from dpal.runs.run import hold


def hold_guidance(improving: Improving) -> None:
    """Sets what near_private will release aside, before the start is trained or touched."""
    folder, private = improving.folder, improving.start.private
    sweep(folder.root)
    _require_same_plan(improving)
    if improving.spec.guidance is None or private is None:
        return  # nothing is released, so nothing is held: the start's ledger says it all
    improving.start.require_same_records()
    with improving.ledger() as ledger:
        begun = ledger.identity is not None
        data = ledger.data() if begun else _shares(improving)
        compared = None
        if data is None and not begun:
            compared = require_unregistered(improving.config.runtime, private)
        hold(improving, ledger, private.files_digest, data=data, compared=compared)


def end_guidance(improving: Improving) -> None:
    """Gives back to the data set what was held and not used."""
    if improving.spec.guidance is not None:
        with improving.ledger() as ledger:
            ledger.end()


def _require_same_plan(improving: Improving) -> None:
    """Requires that what is there was made by this very plan, of these weights and records.

    Nothing is held for a free method, so its record is what a run that goes on is held to.
    """
    folder = improving.folder
    recorded = (folder.root / RECORD).is_file()
    before = folder.read_record().get("plan", {}).get("plan_digest") if recorded else None
    free = improving.spec.guidance is None
    noted = free and any(
        entry.campaign == improving.config.name for entry in improving.known_entries()
    )
    if noted or (recorded and before != improving.plan.digest):
        raise LedgerError.before_release(
            f"improvement {folder.name} was begun with other settings, another start or other "
            "public records; use what it was begun with to continue it, or choose another name"
        )


def _shares(improving: Improving) -> DataHold | None:
    """What the guidance takes of the blocks that the start was about."""
    campaign, runtime = improving.spec.before.campaign, improving.config.runtime
    if campaign is None or improving.config.start.model is not None:
        return None
    with improving.ledger() as ledger:
        held = replace(ledger, campaign=campaign, folder=runtime.artifacts / campaign).data()
    planned = held is None
    if held is None:
        held = improving.start.data  # it is to be trained, and holds nothing yet
    if held is None:
        return None
    releases, target = list(improving.plan.releases()), improving.spec.target
    limit = held.limit.filter
    amount = limit.charge(releases, target.adjacency)
    epsilon = campaign_epsilon(releases, replace(target, delta=limit.delta))
    if planned:
        _require_room(improving, held, amount)
    shares = tuple(
        BlockShare(
            block=share.block,
            size=share.size,
            participation=1.0,
            basis=Basis.RENYI,
            amount=amount,
            epsilon=epsilon,
        )
        for share in held.shares
    )
    return replace(held, shares=shares)


def _require_room(improving: Improving, start: DataHold, amount: Amount) -> None:
    """Requires room for start and guidance together, so that holding one leaves the other whole.

    The start was planned as if it were alone; with less left, records would take part less.
    """
    dataset = data_set(improving.known_entries(), start.dataset)
    for share in start.shares:
        left = dataset.blocks[share.block].left(dataset.limit)
        whole = share.basis is Basis.RENYI and share.participation == 1.0
        if not whole or not (share.amount + amount).within(left):
            raise ParameterError.before_release(
                f"data set {start.dataset} has not enough left in block {share.block} for the "
                "start and near_private together; lower privacy.epsilon, or use diverse_public"
            )
