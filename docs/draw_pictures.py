"""Draws the pictures of the documentation that are drawn: a run as a whole, a vote between sites.

python -m docs.draw_pictures (`make architecture`) writes docs/images/*.svg; a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.drawing import ACCENT, PALE, QUIET, Drawing

IMAGES = Path(__file__).resolve().parent / "images"


_BOXES: tuple[tuple[Any, ...], ...] = (  # place, size, title, lines
    (24, 180, 150, 84, "private records", "the pool, unlabeled", "CSV, pictures, texts"),
    (24, 60, 150, 70, "promise", "epsilon, delta,", "a record or a person"),
    (240, 76, 460, 56, "plan",
     "fixed and certified by two accountants, before a record is touched"),
    (240, 180, 130, 84, "select", "at random, then", "where it is unsure"),
    (405, 180, 130, 84, "label", "people, or a", "program of yours"),
    (570, 180, 130, 84, "train", "gradients clipped,", "noise added"),
    (240, 320, 460, 60, "ledger",
     "reserve, draw, persist, commit: nothing is drawn that is not written down"),
    (786, 96, 150, 70, "model", "predictions, card,", "report"),
    (786, 315, 150, 70, "certificate", "signed; dpal verify", "computes it again"),
)  # fmt: skip


def overview() -> Drawing:
    """What goes into a campaign, what stays inside, and what leaves."""
    drawing = Drawing(
        width=960, height=430,
        title="Private records go into a trusted process, which plans, selects, has labeled and "
        "trains, phase by phase. The ledger has every step before it is drawn. What leaves is a "
        "model, with noise, and a certificate that anybody can check.",
    )  # fmt: skip
    drawing.box(210, 40, 520, 360, fill=PALE, line=ACCENT, dashed=True)
    drawing.text(226, 62, "trusted process", size=12, ink=QUIET, anchor="start")
    for x, y, width, height, title, *lines in _BOXES:
        drawing.labeled_box(x, y, width, height, title, *lines)
    drawing.arrow((174, 95), (240, 95))
    drawing.arrow((174, 222), (240, 222))
    drawing.arrow((470, 132), (470, 180))
    drawing.arrow((370, 210), (405, 210))
    drawing.arrow((535, 210), (570, 210))
    drawing.arrow((635, 264), (635, 290), (305, 290), (305, 264))
    drawing.text(470, 284, "next phase, until the promise is used", size=12, ink=QUIET)
    drawing.arrow((265, 264), (265, 320))
    drawing.arrow((675, 264), (675, 320))
    drawing.arrow((700, 210), (758, 210), (758, 131), (786, 131))
    drawing.arrow((700, 350), (786, 350))
    return drawing


_PARTIES = ("who asks", "guardian", "each site", "the site whose turn it is")
_MESSAGES = (
    (3, 0, "keys for the last comparison"),
    (3, 1, "the other half of them"),
    (1, 0, "seed of a and r, shares of B a, corrections of keys"),
    (1, 2, "seed of B and r, corrections of its keys"),
    (2, 0, "W - B"),
    (0, 2, "x - a, its share of W x + r"),
    (2, 0, "its share of W x + bias + r"),
    (2, 1, "share of its votes + noise + pads"),
    (0, 1, "its share of the margins, masked"),
    (1, 0, "its share of the margins, masked; its share of the answers"),
)  # fmt: skip


def sites_vote() -> Drawing:
    """Who says what to whom when a batch of queries is answered."""
    drawing = Drawing(
        width=960, height=90 + 40 * len(_MESSAGES),
        title="Messages of a vote between sites, from the top to the bottom.",
    )  # fmt: skip
    places = [130 + 235 * number for number in range(len(_PARTIES))]
    bottom = drawing.height - 20
    for place, party in zip(places, _PARTIES, strict=True):
        drawing.parts.append(
            f'<line x1="{place}" y1="56" x2="{place}" y2="{bottom}" stroke="{QUIET}" '
            'stroke-dasharray="3 4"/>'
        )
        drawing.labeled_box(place - 105, 18, 210, 38, party)
    for number, (sender, receiver, words) in enumerate(_MESSAGES):
        y = 96 + 40 * number
        drawing.arrow((places[sender], y), (places[receiver], y))
        middle = (places[sender] + places[receiver]) / 2
        half = 3.2 * len(words) + 4
        middle = max(middle, half + 10)
        drawing.parts.append(  # the words cross no line
            f'<rect x="{middle - half:g}" y="{y - 20}" width="{2 * half:g}" height="16" '
            'fill="#f8fafc"/>'
        )
        drawing.text(middle, y - 7, words, size=12)
    return drawing


def favicon() -> str:
    """The mark of the site."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
        f'<rect width="32" height="32" rx="7" fill="{ACCENT}"/>'
        '<path d="M16 5l9 4v7c0 6-4 10-9 12-5-2-9-6-9-12V9z" fill="#fff"/>'
        f'<path d="M11 16l4 4 7-8" fill="none" stroke="{ACCENT}" stroke-width="3"/></svg>\n'
    )


def pictures() -> Mapping[str, str]:
    """Every drawn picture, by the name of its file."""
    from docs.draw_architecture import layers_drawing

    return {
        "overview.svg": overview().svg(),
        "sites-vote.svg": sites_vote().svg(),
        "layers.svg": layers_drawing().svg(),
        "favicon.svg": favicon(),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
