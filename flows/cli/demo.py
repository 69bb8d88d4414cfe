"""`dpal demo`: the sample campaign, in the folder where it is typed."""

from __future__ import annotations

from pathlib import Path

from dpal.errors import ConfigError
from dpal.runs.kinds import CAMPAIGN, parse_any
from flows.cli.read_settings import load_values
from flows.cli.samples import sample_data, template_settings
from flows.cli.terminal import out

EXAMPLE = "Example: mkdir trial && cd trial && dpal demo"

_SETTINGS = Path("digits.yaml")
_DATA = Path("data")


def demo() -> None:
    """Run a whole campaign on handwritten digits, in this folder: about a minute, no settings.

    Writes digits.yaml and data/ first, over nothing that is there; typed again, goes on with it.
    """
    if _write_sample():
        out.print(f"wrote {_SETTINGS} and the sample data in {_DATA}/")
    from flows.cli.run_in_terminal import run_here

    run_here(parse_any(load_values(_SETTINGS, [])))


def _write_sample() -> list[Path]:
    """Writes the settings and the data that are not there yet; returns which.

    Raises:
      ConfigError: a file of that name is there, with another content. Nothing was written.
    """
    wanted = {_DATA / name: content for name, content in sample_data().items()}
    wanted[_SETTINGS] = _settings().encode()
    for path, content in wanted.items():
        if path.exists() and not (path.is_file() and path.read_bytes() == content):
            raise ConfigError(
                f"{path} is there already, and is not the sample's; nothing was changed, run "
                f"dpal demo in an empty folder, or what is here: dpal run {_SETTINGS}"
            )
    from dpal.files.atomic_writes import atomic_write

    missing = [path for path in wanted if not path.exists()]
    for path in missing:
        with atomic_write(path) as staged:
            staged.write_bytes(wanted[path])
    return missing


def _settings() -> str:
    head = f"# What dpal demo runs. Look: dpal plan {_SETTINGS}    Run: dpal run {_SETTINGS}"
    return f"{head}\n\nname: {_SETTINGS.stem}{template_settings(CAMPAIGN)}"
