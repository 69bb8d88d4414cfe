"""What a search among settings of the training tried, and what each trial reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpal.reports.report import Table, table
from dpal.reports.validation_figures import headline, interval_words, is_protected, percent

_WORDS = {
    "name": "optimizer",
    "learning_rate": "learning rate",
    "max_grad_norm": "clipping norm",
    "momentum": "momentum",
    "weight_decay": "weight decay",
    "agc_clipping": "clipping of sgd_agc",
}


def search_table(search: Mapping[str, Any]) -> Table:
    """One row a trial: the settings that trials differ by, and the figure that decided.

    Args:
      search: `search.json` of phase 0.
    """
    tried, reached = search["settings"], search["trials"]
    differ = [key for key in tried[0] if any(one[key] != tried[0][key] for one in tried)]
    rows = (
        {
            "trial": f"{number}{' (goes on)' if number == search['best'] else ''}",
            **{_WORDS.get(key, key): _value(settings[key]) for key in differ},
            f"validation {headline(metrics)[0]}": percent(headline(metrics)[1]),
            **({"95 % interval": interval_words(metrics)} if is_protected(metrics) else {}),
        }
        for number, (settings, metrics) in enumerate(zip(tried, reached, strict=True), start=1)
    )
    return table("Search among settings, before phase 0", rows)


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """The settings that most decide how a training ends.

    >>> settings_in_words({"name": "sgd", "learning_rate": 2.0, "max_grad_norm": 0.3})
    'sgd, learning rate 2, clipping norm 0.3'
    """
    keys = ("learning_rate", "max_grad_norm")
    return ", ".join([settings["name"], *(f"{_WORDS[key]} {settings[key]:g}" for key in keys)])


def search_in_plan(summary: Mapping[str, Any]) -> str:
    """What is tried before phase 0, and whom that costs something.

    Args:
      summary: of a plan that has a search.
    """
    told = summary["search"]
    return (
        f"search: {told['trials']} trials of {told['steps']:,} steps each on the initial cohort, "
        "before phase 0; all of them are charged, and the best on the validation set goes on"
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
