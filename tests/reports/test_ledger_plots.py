"""The figure of a data set's budget is as long as what campaigns took."""

from __future__ import annotations

from contextlib import closing

import pytest
from matplotlib.patches import Rectangle

from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_history import parts_of
from dpal.ledger.ledger_store import LedgerStore
from dpal.reports.plots.datasets import HELD, dataset_figure
from tests.ledger.telling import tell


def test_bars_of_a_block_are_its_campaigns_shares_one_after_the_other(tmp_path):
    tell(tmp_path)
    with closing(LedgerStore(tmp_path / "ledger.sqlite")) as store:
        entries = store.entries()
    known, parts = data_set(entries, "clinic"), parts_of(entries, "clinic")
    figure = dataset_figure(known, parts)
    bars = [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert len(bars) == len(figure.axes[0].patches)
    assert [bar.get_width() for bar in bars] == pytest.approx(
        [one.share for block in (0, 1) for one in parts if one.block == block]
    )
    starts = [bar.get_x() for bar in bars]
    assert starts == pytest.approx([0, bars[0].get_width(), 0])
    assert [bar.get_alpha() for bar in bars] == [1.0, HELD, HELD]
    texts = {one.get_text() for one in figure.axes[0].texts}
    assert texts == {f"epsilon {one.epsilon_taken(known.limit):.4f}" for one in known.blocks}
    assert "delta 0.0001, adjacency zero_out, unit record" in figure.axes[0].get_title(loc="left")
    [legend] = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == ["first", "second (held)"]
    assert len({bar.get_facecolor()[:3] for bar in bars}) == 2
