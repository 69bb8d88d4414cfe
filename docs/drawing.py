"""Drawing in SVG: boxes, arrows and texts on a light card that is readable on any page.

A picture carries its own background, because a page that is dark by its own switch does not tell
a picture so. It loads nothing, no fonts either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

INK, QUIET, LINE, ACCENT = "#1f2937", "#4b5563", "#94a3b8", "#3949ab"
PAPER, PALE, WHITE = "#f8fafc", "#e8eaf6", "#ffffff"


@dataclass(kw_only=True)
class Drawing:
    """A picture of a size in pixels.

    Attributes:
      width: pixels from left to right.
      height: pixels from top to bottom.
      title: what it shows, for those who cannot see it.
    """

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = WHITE,
        line: str = LINE, dashed: bool = False,
    ) -> None:  # fmt: skip
        """A rectangle; x and y are its upper left corner."""
        dashes = ' stroke-dasharray="6 5"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.5"{dashes}/>'
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 14, bold: bool = False,
        ink: str = INK, anchor: str = "middle",
    ) -> None:  # fmt: skip
        """One line of text, whose base line is at y."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{ink}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def labeled_box(
        self, x: float, y: float, width: float, height: float, title: str, *lines: str,
        fill: str = WHITE, line: str = LINE,
    ) -> None:  # fmt: skip
        """A rectangle with a title, and smaller lines below it, in its middle."""
        self.box(x, y, width, height, fill=fill, line=line)
        top = y + height / 2 + 5 - 9 * len(lines)
        self.text(x + width / 2, top, title, bold=True)
        for number, words in enumerate(lines, 1):
            self.text(x + width / 2, top + 18 * number, words, size=12, ink=QUIET)

    def arrow(self, *points: tuple[float, float], ink: str = INK) -> None:
        """A line through points, with a head at the last one."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        """The picture as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">"
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/>'
            "</marker></defs>"
        )
        card = (
            f'<rect width="{self.width}" height="{self.height}" rx="12" fill="{PAPER}" '
            f'stroke="{LINE}"/>'
        )
        body = "\n".join([head, f"<title>{escape(self.title)}</title>", marker, card, *self.parts])
        return f"{body}\n</svg>\n"
