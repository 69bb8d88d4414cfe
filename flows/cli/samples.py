"""What comes with dpal to start from: templates of settings, and the sample data."""

from __future__ import annotations

from pathlib import Path

from dpal.errors import ConfigError
from dpal.runs.kinds import RunKind

_ROOM = Path(__file__).parent.parent
_CONFIGS = _ROOM / "configs"
# A wheel brings the sample data; a checkout has it where `dvc pull` restores it.
_PLACES = (_ROOM / "samples", _ROOM.parent / "data")


def template_settings(kind: RunKind) -> str:
    """The template of a kind of run, after its name: the comments above speak of a checkout."""
    template = _CONFIGS / kind.template
    return template.read_text(encoding="utf-8").partition(f"name: {template.stem}")[2]


def sample_data() -> dict[str, bytes]:
    """The sample data's files by name, with whom they are from.

    Raises:
      ConfigError: a checkout has not restored them.
    """
    for place in _PLACES:
        if files := [*place.glob("README.md"), *place.glob("digits-*.parquet")]:
            return {path.name: path.read_bytes() for path in files}
    raise ConfigError("the sample data has to be restored first, in the checkout: make data")
