"""`dpal data`: data sets, their limits over all campaigns, and what is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from dpal.files.stored_objects import place_of
from dpal.privacy import Adjacency, Unit
from flows.cli.read_settings import RuntimeSettings, runtime_from
from flows.cli.terminal import out, print_table

if TYPE_CHECKING:  # pyarrow, which a machine that verifies certificates need not have
    from dpal.ledger.data_set_accounts import DataSet
    from dpal.ledger.data_set_registry import Added

data_app = typer.Typer(
    help="Register data sets with a limit that all campaigns on them share.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="Name of the data set.")]
Apart = Annotated[
    str | None,
    typer.Option(
        metavar="REASON",
        help="Why earlier runs whose records cannot be compared any more were about other "
        "people; stands in the ledger.",
    ),
]
Files = Annotated[
    list[str], typer.Argument(metavar="POOL.parquet...", help="Files or folders, or their URLs.")
]


@data_app.command("register", epilog="Example: dpal data register clinic pool.parquet --epsilon 8")
def register_command(
    name: Name,
    files: Files,
    epsilon: Annotated[float, typer.Option(min=0, help="Over all campaigns, of any record.")],
    delta: Annotated[
        float | None, typer.Option(help="Left out: 1 / (10 x number of records).")
    ] = None,
    adjacency: Annotated[Adjacency, typer.Option(help="As in campaigns.")] = Adjacency.ZERO_OUT,
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Protect everything of one person, by this column."),
    ] = None,
    apart: Apart = None,
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:
    """Set a limit for everyone in these records, over all campaigns together.

    What runs without a data set spent on them before counts, as far as this ledger knows.
    """
    from dpal.accounting.renyi_filter import RenyiFilter
    from dpal.ledger.data_set_accounts import Limit
    from dpal.privacy import choose_delta
    from dpal.reports.ledger_tables import limit_in_words
    from dpal.runs import manage_data_sets

    parse_config({"name": "check", "data": {"dataset": name}})
    runtime = runtime_from(settings)
    places = list(map(place_of, files))
    owners = manage_data_sets.count_owners(places, group)
    limit = Limit(
        filter=RenyiFilter.fitted(epsilon, choose_delta(delta, pool_size=owners)),
        adjacency=adjacency,
        unit=Unit.GROUP if group else Unit.RECORD,
        group_column=group,
    )
    if apart is not None and not apart.strip():
        raise ConfigError("--apart needs a reason; nothing was registered")
    added = manage_data_sets.register_data_set(name, limit, places, runtime, apart=apart)
    out.print(f"data set {name}: {limit_in_words(limit)}", soft_wrap=True)
    _say_added(name, added, limit.unit)
    out.print(f"campaigns use it with data.dataset: {name}; what is left: dpal data show {name}")


@data_app.command("add", epilog="Example: dpal data add clinic march.parquet")
def add_command(
    name: Name,
    files: Files,
    similar: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Why records that look like known ones are other people's; stands in the ledger.",
        ),
    ] = None,
    apart: Apart = None,
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:
    """Make new records a block with a limit of its own; known ones stay where they are.

    What runs without a data set spent on the new ones counts.
    """
    from dpal.runs import manage_data_sets

    if similar is not None and not similar.strip():
        raise ConfigError("--similar needs a reason; nothing was added")
    if apart is not None and not apart.strip():
        raise ConfigError("--apart needs a reason; nothing was added")
    runtime = runtime_from(settings)
    places = list(map(place_of, files))
    added = manage_data_sets.add_block(name, places, runtime, similar=similar, apart=apart)
    registered = manage_data_sets.registered(runtime)[name]
    _say_added(name, added, registered.limit.unit)
    _say_large_delta(name, registered)


@data_app.command(epilog='Example: dpal data limit clinic --epsilon 10 --reason "board, May 3"')
def limit(
    name: Name,
    epsilon: Annotated[float, typer.Option(min=0, help="The new limit.")],
    reason: Annotated[str, typer.Option(help="Who decided so, and why; stands in the ledger.")],
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:
    """Change a data set's limit, as its owner. Never below what is taken."""
    from dpal.reports.ledger_tables import limit_in_words
    from dpal.runs import manage_data_sets

    if not reason.strip():
        raise ConfigError("a changed limit needs a --reason; nothing was changed")
    changed = manage_data_sets.change_limit(name, epsilon, reason, runtime_from(settings))
    out.print(f"data set {name}: {limit_in_words(changed)}", soft_wrap=True)


@data_app.command("show", epilog="Example: dpal data show clinic --json")
def show_data(
    name: Annotated[str | None, typer.Argument(help="One data set; all if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:
    """Show what is taken and left of every block."""
    from dpal.reports.ledger_tables import blocks_table, limit_in_words
    from dpal.runs import manage_data_sets

    registered = manage_data_sets.registered(runtime_from(settings))
    if name is not None:
        if name not in registered:
            there = ", ".join(registered) or "none"
            raise ConfigError(f"data set {name} is not registered (registered: {there})")
        registered = {name: registered[name]}
    if as_json:
        views = {set_name: manage_data_sets.view_of(each) for set_name, each in registered.items()}
        typer.echo(json.dumps(views, indent=2))
        return
    if not registered:
        out.print("no data set is registered; start with: dpal data register --help")
    for set_name, each in registered.items():
        out.print(f"data set {set_name}: {limit_in_words(each.limit)}", soft_wrap=True)
        print_table(blocks_table(each))
        _say_large_delta(set_name, each)
    if registered:
        out.print("shares of a block add up over campaigns; their epsilons do not")


def _say_large_delta(name: str, registered: DataSet) -> None:
    """Delta was chosen when the first records came; more of them may have made it a large one."""
    from dpal.certificate.promise_checks import is_paper

    owners = sum(block.size for block in registered.blocks)
    delta, unit = registered.limit.filter.delta, registered.limit.unit
    if is_paper(delta, owners):
        out.print(
            f"delta {delta:.4g} of data set {name} was chosen for fewer {unit}s: of {owners:,} it "
            f"would also allow publishing {delta * owners:.3g}; register further ones as a data "
            "set of their own",
            soft_wrap=True,
        )


def _say_added(name: str, added: Added, unit: Unit) -> None:
    from dpal.reports.ledger_words import left_of_limit

    if added.block is None:
        out.print(f"nothing new: all {added.known:,} records are known to data set {name}")
    else:
        of_records = "" if unit is Unit.RECORD else " records"
        known_note = (
            f"; {added.known:,}{of_records} were known and stay in their blocks"
            if added.known
            else ""
        )
        left = left_of_limit(added.earlier)
        if added.earlier:
            left += f" (dpal data show {name})"
        out.print(
            f"block {added.block}: {added.new:,} new {unit}s with {left}{known_note}",
            soft_wrap=True,
        )
    if added.copied:
        out.print(
            f"{added.copied:,} of the known ones only look like a record; they share its budget",
            soft_wrap=True,
        )
    if added.unread:
        out.print(
            f"{added.unread:,} records were added by an earlier version, which kept nothing by "
            "which copies of them are recognised; add their files once more",
            soft_wrap=True,
        )
