"""Pages as a browser would find them, and what none of them may do."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

# What can load something, run something or lead elsewhere.
DANGEROUS = {"script", "link", "iframe", "object", "embed", "a", "form", "base", "use"}


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would find them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "img"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag  # well formed

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += f" {' '.join(data.split())}"

    def named(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)

    def verdict(self) -> str:
        """How the only verdict is shown: kept, mind or broken."""
        classes = [(one.get("class") or "").split() for one in self.named("section")]
        [(_, tone)] = [one for one in classes if one[:1] == ["verdict"]]
        return tone

    def finish(self) -> Page:
        assert self._open == []
        return self


def sound(html: str) -> Page:
    """A page on which nothing loads, runs or leads elsewhere; pictures are part of it."""
    page = Page(html).finish()
    assert not DANGEROUS & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert not {"href", "srcset", "action", "style"} & set(attributes)
    pictures = [str(one["src"]) for one in page.named("img")]
    assert all(source.startswith("data:image/png;base64,") for source in pictures)
    assert len(pictures) == sum("src" in attributes for _, attributes in page.tags)
    [policy] = [one["content"] for one in page.named("meta") if "http-equiv" in one]
    more = "; img-src data:" if pictures else ""
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'{more}"
    return page
