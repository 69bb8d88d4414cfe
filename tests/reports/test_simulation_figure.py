from __future__ import annotations

import numpy as np

from dpal.reports.plots.simulation import scores_figure


def test_a_mechanism_that_selected_nobody_is_drawn_as_nobody():
    scores = np.random.default_rng(0).random(500)
    picked = {"hidden": scores[:50], "visible": np.zeros(0)}  # an empty density would be 0 / 0
    with np.errstate(all="raise"):
        figure = scores_figure(scores, picked, "scores")
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"pool", "hidden", "visible: nobody"}
