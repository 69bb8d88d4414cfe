"""`dpal vote`: released labels from ballots of teachers that somebody else trained."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpal.accounting.votes.mechanisms import MOST_BLOCKS, Mechanism, ReleasedVotes
from dpal.config.section import NAME
from dpal.errors import ConfigError
from dpal.privacy import Adjacency, Unit
from flows.cli.read_settings import RuntimeSettings, runtime_from
from flows.cli.terminal import out, print_table

EXAMPLE = (
    "Examples: dpal vote ballots.parquet --epsilon 8 --records 5000 --sweep sigma=4:20:2; dpal "
    "vote ballots.parquet --name clinic-votes --epsilon 8 --records 5000 --sigma 12; dpal vote "
    "ballots.parquet --explain --public labeled.parquet --epsilon 8 --records 5000"
)


class _Unit(StrEnum):
    RECORD = "record"
    GROUP = "group"


def vote_command(
    ballots: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Parquet: id, teacher and ballot (0/1 lists), scores (lists) or class; or a file "
            "for each teacher.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Account of these teachers: all that is ever asked of them counts in "
                     "it. Without a name nothing is released."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Promised for all queries of the account.")] = 8.0,
    delta: Annotated[
        float | None, typer.Option(help="Failure probability; below 1 / records.")
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(help="Private records of all teachers together; delta is 1 / (10 x records)."),
    ] = None,
    unit: Annotated[
        _Unit, typer.Option(help="What belongs to one teacher alone: each record, or each group.")
    ] = _Unit.RECORD,
    adjacency: Annotated[
        Adjacency, typer.Option(help="One ballot is replaced under both.")
    ] = Adjacency.ZERO_OUT,
    mechanism: Annotated[
        Mechanism | None, typer.Option(help="Default: binary; gnmax of classes.")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise on each count, in votes; default: the least that fits."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(help="Of top_m, tau_l2, tau_l1 and powerset: positives, or the norm."),
    ] = None,
    noises: Annotated[int, typer.Option(min=1, max=2, help="Noisy counts of a label.")] = 2,
    release: Annotated[
        ReleasedVotes,
        typer.Option(help="answers: what most teachers say. counts: noisy numbers of votes, from "
                     "which answers follow, charged as such."),
    ] = ReleasedVotes.ANSWERS,
    threshold: Annotated[
        float | None, typer.Option(help="Answer only above so many votes (Confident).")
    ] = None,
    threshold_sigma: Annotated[
        float | None, typer.Option(help="Noise of that check, in votes.")
    ] = None,
    answer_from: Annotated[
        float | None,
        typer.Option(help="Answer where this share of the teachers agrees: threshold, its noise "
                     "and sigma are chosen for it."),
    ] = None,
    answered_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With a threshold: guess of the share of queries that pass "
                     "it. An unanswered query is charged less than an answered one, and asking "
                     "stops when the promise is spent."),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Label that is asked first: where it is released as "
                     "absent, its dependents are 0 at no cost, and more queries are asked."),
    ] = None,
    dependents: Annotated[
        str | None,
        typer.Option(metavar="LABEL[,LABEL...]", help="Labels that are 0 where the gate is."),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(min=1, help="With a gate: queries that are paid for in full; default: all in "
                     "the files, or with a sigma as many as epsilon is sure to pay for."),
    ] = None,
    cut: Annotated[float, typer.Option(help="Scores above it are a yes; public.")] = 0.5,
    blocks: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_BLOCKS, help="How often so many queries may be asked in all; "
                     "default: once, or what the account holds."),
    ] = None,
    partitions: Annotated[
        Path | None,
        typer.Option(help="Parquet with id, teacher (and group): checked to be disjoint."),
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(help="Parquet with teacher and epsilon: teachers that promise their records "
                     "less. They vote until that is spent, on the first queries of each block."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="ACCOUNT", help="Count what this account holds in the promise."),
    ] = None,
    other_teachers: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Why these are not the teachers of another account "
                     "that has such names or answers: no private record is behind both. It is "
                     "kept in the account's record."),
    ] = None,
    agreement: Annotated[
        str | None,
        typer.Option(metavar="SHARE[,SHARE...]", help="Answers leave with little noise only if "
                     "what they cost, told with noise, is small, and with more noise else; this "
                     "public guess of the share of teachers that agree sets how small: the mean, "
                     "or shares that stand for as many queries each."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=START:STOP:STEP", help="Costs over sigma, limit, epsilon, "
                     "queries, answer_from, threshold or threshold_sigma; several together if "
                     "given several times. Releases nothing."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Which mechanism to choose, or which threshold of "
                     "classes, and why.")
    ] = False,
    public: Annotated[
        Path | None,
        typer.Option(help="For --explain: public labeled records; of classes, ballots of an "
                     "ensemble that was trained on public records."),
    ] = None,
    consensus: Annotated[
        float, typer.Option(help="Share of teachers that agree, for --explain --public.")
    ] = 0.9,
    pay: Annotated[
        float | None,
        typer.Option(metavar="EPSILON", help="For --explain: release a noisy summary of the "
                     "ballots at this price."),
    ] = None,
    private_figures: Annotated[
        bool,
        typer.Option("--private-figures", help="Also what these very votes cost, and how many "
                     "queries epsilon would pay for by that (an expectation). These numbers are "
                     "private: do not publish or act on them."),
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(help="Parquet with id and label, for --private-figures: how right answers "
                     "are expected to be."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    settings: RuntimeSettings = [],  # noqa: B006
) -> None:  # fmt: skip
    """Turn ballots of teachers into released labels, their cost and a certificate.

    Nothing is trained. The cost holds whatever the votes are; how many queries are asked is
    fixed beforehand. The same ballots again give the same labels, without another charge.
    """
    if not sweep and (threshold is None) != (threshold_sigma is None):
        raise ConfigError.before_release("--threshold and --threshold-sigma belong together")
    if (gate is None) != (dependents is None):
        raise ConfigError.before_release("--gate and --dependents belong together")
    if explain and sweep:
        raise ConfigError("--explain and --sweep are two views; ask for one of them")
    if sweep and (agreement is not None or answered_share is not None):
        raise ConfigError.before_release(
            "--sweep shows what any votes would cost; with --agreement or --answered-share that "
            "depends on what is released; leave one of them out"
        )
    if budgets is not None and (explain or sweep or private_figures):
        raise ConfigError.before_release(
            "--budgets is for the account as it is asked; --explain, --sweep and --private-figures "
            "let all teachers vote on every query; leave one of them out"
        )
    if delta is None and records is None:
        raise ConfigError.before_release(
            "give --records (private records of all teachers together) or --delta; without either "
            "nobody knows what epsilon means"
        )
    if name is not None and not re.fullmatch(NAME, name):
        raise ConfigError.before_release(
            f"--name {name!r} names a folder and ledger entries: use lower-case letters, digits, - "
            "and _"
        )
    if other_teachers is not None and not (other_teachers := " ".join(other_teachers.split())):
        raise ConfigError.before_release("--other-teachers needs a reason")
    if truth is not None and (not private_figures or explain or (name is not None and not sweep)):
        raise ConfigError.before_release(
            "--truth is for looking at these votes with --private-figures, with or without --sweep "
            "and without --explain or --name"
        )
    from dpal.data.ballot_files import true_labels
    from dpal.runs.vote_request import VoteRequest
    from flows.cli import vote_view

    request = VoteRequest(
        places=tuple(ballots),
        name=name,
        epsilon=epsilon,
        delta=delta,
        records=records,
        unit=Unit(unit.value),
        adjacency=adjacency,
        mechanism=mechanism,
        sigma=sigma,
        limit=limit,
        noises=noises,
        release=release,
        threshold=threshold,
        threshold_sigma=threshold_sigma,
        cut=cut,
        blocks=blocks,
        partitions=partitions,
        budgets=budgets,
        after=after,
        other_teachers=other_teachers,
        agreement=_agreement(agreement),
        answer_from=answer_from,
        answered_share=answered_share,
        gate=gate,
        dependents=() if dependents is None else tuple(dependents.split(",")),
        queries=queries,
        runtime=runtime_from(settings),
    )
    true = None if truth is None else true_labels(truth, request.cast)
    if explain:
        from flows.cli.vote_advice import mechanism_advice

        view = mechanism_advice(request, public, consensus, pay)
    elif sweep:
        view = vote_view.vote_sweep_view(request, sweep, private=private_figures, truth=true)
    elif name is None:
        view = vote_view.vote_cost_view(request, private=private_figures, truth=true)
    else:
        from flows.cli.vote_release import released

        view = released(request, private=private_figures)
    if as_json:
        typer.echo(json.dumps(view.record, indent=2))
        return
    for table in view.tables:
        print_table(table)
    for line in view.lines:
        out.print(line, markup=False, soft_wrap=True)


def _agreement(text: str | None) -> float | tuple[float, ...] | None:
    """The guess that was typed: one number, or several after commas."""
    if text is None:
        return None
    try:
        shares = tuple(map(float, text.split(",")))
    except ValueError:
        raise ConfigError.before_release(
            f"--agreement {text} is no share of the teachers, nor several with commas between; "
            "write 0.9, or 0.55,0.8,0.95"
        ) from None
    return shares[0] if len(shares) == 1 else shares
