"""`dpal init`: a commented configuration to start from, of any kind of run, or for given data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpal.config.campaign import parse_config
from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError
from dpal.files.stored_objects import Place, place_of
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, KINDS, VOTING
from flows.cli.dvc_stage import PIPELINE, write_stage
from flows.cli.samples import template_settings
from flows.cli.terminal import out

_LABEL, _EPSILON = "label", 8.0
_TEMPLATES = ", ".join(kind.name for kind in KINDS.values() if kind.template)


EXAMPLE = (
    "Example: dpal init clinic --data patients.parquet --epsilon 3 && dpal plan clinic.yaml && "
    "dpal run clinic.yaml"
)


def init(
    name: Annotated[str, typer.Argument(help="Name of the campaign.")],
    of_kind: Annotated[
        str | None,
        typer.Option("--kind", help=f"What to run: {_TEMPLATES}.", show_default=CAMPAIGN.name),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="The same as --kind public.")] = False,
    votes: Annotated[bool, typer.Option("--pate", help="The same as --kind pate.")] = False,
    data: Annotated[
        str | None,
        typer.Option(metavar="POOL.parquet", help="Look at this data, and write what suits it."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Held-out records, where --data has no column split."),
    ] = None,
    why_public: Annotated[
        str | None,
        typer.Option(
            metavar="WHY",
            help="Why everybody may see the held-out records; left out, they are protected.",
        ),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the labels.", show_default=_LABEL)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="The promise; smaller is safer.", show_default=f"{_EPSILON:g}"),
    ] = None,
    labels: Annotated[
        int | None,
        typer.Option(
            help="That may be bought, of groups where these are protected; left out, by the pool."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE", help="Folder or .safetensors file of a public pretrained model."
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose weights: resnet50, timm:vit_base_patch16_224 ..."),
    ] = None,
    dvc: Annotated[
        bool, typer.Option("--dvc", help="Also write dvc.yaml, for `dvc exp run` and `show`.")
    ] = False,
) -> None:
    """Write a commented configuration to start from, or one that suits your data."""
    parse_config({"name": name})
    if dvc and PIPELINE.exists():
        raise ConfigError(f"{PIPELINE} exists already; leave --dvc out, or move it away")
    if data is not None:
        if of_kind or public or votes:
            raise ConfigError("--data writes a campaign; leave the kind out")
        held_out = None if validation is None else place_of(validation)
        _for_data(
            name,
            place_of(data),
            held_out,
            label_column or _LABEL,
            why_public,
            _EPSILON if epsilon is None else epsilon,
            labels,
            weights,
            backbone,
        )
        if dvc:
            _add_stage(name)
        return
    given = {"--validation": validation, "--why-public": why_public, "--epsilon": epsilon,
             "--label-column": label_column, "--labels": labels, "--weights": weights,
             "--backbone": backbone}  # fmt: skip
    for option, value in given.items():
        if value is not None:
            raise ConfigError(
                f"{option} goes with --data; name your data, too, or leave {option} out and change "
                "the settings once they are written"
            )
    short = {IMPROVEMENT.name: public, VOTING.name: votes}
    asked = {of_kind} - {None} | {kind for kind, chosen in short.items() if chosen}
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(sorted(map(str, asked)))} are two kinds; choose one")
    kind = KINDS.get(str(asked.pop() if asked else CAMPAIGN.name))
    if kind is None or not kind.template:
        raise ConfigError(f"there is no template of kind {of_kind}; choose {_TEMPLATES}")
    target = _new_file(name)
    settings = template_settings(kind)
    for shown, usual in kind.for_own_data.items():
        settings = settings.replace(shown, usual, 1)
    header = f"# Look first: dpal plan {target}    Run: dpal run {target}\n\n"
    target.write_text(f"{header}{kind.line}name: {name}{settings}", encoding="utf-8")
    out.print(f"wrote {target}; name your own files in it, then: dpal plan {target}")
    if dvc:
        _add_stage(name)


def _add_stage(name: str) -> None:
    out.print(f"wrote {write_stage(Path(f'{name}.yaml'))}; next: dvc repro", markup=False)


def _new_file(name: str) -> Path:
    target = Path(f"{name}.yaml")
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name or remove it")
    return target


def _for_data(
    name: str,
    data: Place,
    validation: Place | None,
    label_column: str,
    why_public: str | None,
    epsilon: float,
    labels: int | None,
    weights: Path | None,
    backbone: str | None,
) -> None:
    """Looks at data and writes settings that suit it."""
    target = _new_file(name)
    why = why_public.strip() if why_public and why_public.strip() else None
    from tqdm import tqdm

    from dpal.runs.first_settings import first_settings, look_at

    with tqdm(desc="looking at data", unit="rec", disable=None, leave=False) as bar:
        look = look_at(
            data,
            validation,
            label_column=label_column,
            on_rows=bar.update,
        )
    text = first_settings(
        look,
        name,
        why_public=why,
        epsilon=epsilon,
        labels=labels,
        weights=weights,
        backbone=backbone,
    )
    parse_config(read_yaml(text))  # what is written can be run
    target.write_text(text, encoding="utf-8")
    if look.group_column is not None and not look.protects_groups:
        # Whoever said whose records these are would take for granted that all of a person's are.
        out.print(
            f"note: {target} protects single records, and whoever has several is protected less: "
            f"column {look.group_column} names too few groups, or not those of all records; what "
            "protects them stands below data there",
            markup=False,
        )
    out.print(f"wrote {target}: {look.rows:,} records, {look.classes} classes or labels; next: "
              f"dpal plan {target}", markup=False)  # fmt: skip
