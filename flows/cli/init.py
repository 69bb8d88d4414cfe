"""`dpal init`: a commented configuration to start from, of any kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, KINDS, VOTING
from flows.cli.terminal import out

_CONFIGS = Path(__file__).parent.parent / "configs"
_TEMPLATES = ", ".join(kind.name for kind in KINDS.values() if kind.template)


EXAMPLE = "Example: dpal init clinic && dpal plan clinic.yaml"


def init(
    name: Annotated[str, typer.Argument(help="Name of the campaign.")],
    of_kind: Annotated[
        str | None,
        typer.Option("--kind", help=f"What to run: {_TEMPLATES}.", show_default=CAMPAIGN.name),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="The same as --kind public.")] = False,
    votes: Annotated[bool, typer.Option("--pate", help="The same as --kind pate.")] = False,
) -> None:
    """Write a commented configuration to start from."""
    parse_config({"name": name})
    short = {IMPROVEMENT.name: public, VOTING.name: votes}
    asked = {of_kind} - {None} | {kind for kind, chosen in short.items() if chosen}
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(sorted(map(str, asked)))} are two kinds; choose one")
    kind = KINDS.get(str(asked.pop() if asked else CAMPAIGN.name))
    if kind is None or not kind.template:
        raise ConfigError(f"there is no template of kind {of_kind}; choose {_TEMPLATES}")
    template = _CONFIGS / kind.template
    target = Path(f"{name}.yaml")
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name or remove it")
    # The comments above the name speak of the sample; a person's own file starts at the name.
    settings = template.read_text(encoding="utf-8").partition(f"name: {template.stem}")[2]
    for shown, usual in kind.for_own_data.items():
        settings = settings.replace(shown, usual, 1)
    header = f"# Look first: dpal plan {target}    Run: dpal run {target}\n\n"
    target.write_text(f"{header}{kind.line}name: {name}{settings}", encoding="utf-8")
    out.print(f"wrote {target}; name your own files in it, then: dpal plan {target}")
