"""A page of another origin, and what it tries against a server of the stack."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from selenium.webdriver import Chrome

# Each of them resolves to what the page could make of the answer.
_SCRIPT = """
const [what, wanted, done] = arguments;
const soon = (promise) => Promise.race([
    promise, new Promise((tell) => setTimeout(() => tell({blocked: 'no answer'}), 15000))]);
const read = async (answer) => ({
    status: answer.status, type: answer.type, text: (await answer.text()).slice(0, 2000)});
const ways = {
    fetch: async () => read(await fetch(wanted.url, wanted.options)),
    // A body without a type is sent without asking first, whatever the server takes it for.
    untyped: async () => read(await fetch(wanted.url, {
        method: 'POST', mode: 'no-cors', credentials: 'include', body: new Blob([wanted.body])})),
    form: () => new Promise((tell) => {
        const frame = document.createElement('iframe');
        frame.name = 'answers';
        document.body.append(frame);
        const form = document.createElement('form');
        Object.assign(form, {
            method: 'POST', action: wanted.url, enctype: 'text/plain', target: 'answers'});
        const field = document.createElement('input');  // name=value is the whole body
        const cut = wanted.body.indexOf('=');
        field.name = wanted.body.slice(0, cut);
        field.value = wanted.body.slice(cut + 1);
        form.append(field);
        document.body.append(form);
        frame.addEventListener('load', () => setTimeout(() => tell({sent: true}), 500));
        form.submit();
    }),
    socket: () => new Promise((tell) => {
        const socket = new WebSocket(wanted.url, wanted.protocols || []);
        socket.onopen = () => {
            for (const text of wanted.messages || []) socket.send(text);
            setTimeout(() => tell({opened: true, closed: socket.readyState > 1}), 3000);
        };
        socket.onmessage = (event) => tell({opened: true, text: String(event.data)});
        socket.onerror = () => tell({blocked: 'error'});
    }),
};
soon(ways[what]()).catch((error) => ({blocked: String(error)})).then(done);
"""


@dataclass(frozen=True, kw_only=True)
class ForeignPage:
    """A page that a person of the stack has open, and that wants something of the stack.

    Attributes:
      chrome: in which it is open.
      url: where it is from.
    """

    chrome: Chrome
    url: str

    def open(self) -> None:
        """Opens it, as a click on a link does."""
        self.chrome.get(self.url)

    def fetch(self, url: str, **options: Any) -> dict[str, Any]:
        """What fetch() gives the page: a status and a text, or that it was blocked."""
        return self._try("fetch", url=url, options=options)

    def post_untyped(self, url: str, body: str) -> dict[str, Any]:
        """Sends a body for which no browser asks the server first."""
        return self._try("untyped", url=url, body=body)

    def submit(self, url: str, body: str) -> dict[str, Any]:
        """Sends a form whose text is `body`, which has an = somewhere."""
        return self._try("form", url=url, body=body)

    def listen(self, url: str, protocols: list[str], messages: list[str]) -> dict[str, Any]:
        """Opens a web socket, says something and waits for a word."""
        return self._try("socket", url=url, protocols=protocols, messages=messages)

    def frame(self, url: str) -> str:
        """What a frame with a page of the stack shows; empty where the browser refused it."""
        self.open()
        self.chrome.execute_async_script(
            "const [url, done] = arguments, frame = document.createElement('iframe');"
            "frame.onload = () => setTimeout(done, 3000); frame.src = url;"
            "document.body.append(frame)",
            url,
        )
        frame = self.chrome.find_elements("css selector", "iframe")[0]
        self.chrome.switch_to.frame(frame)
        try:
            place = str(self.chrome.execute_script("return document.location.href"))
            text = str(self.chrome.execute_script("return document.documentElement.outerHTML"))
        finally:
            self.chrome.switch_to.default_content()
        return "" if place.startswith("chrome-error:") else text

    def _try(self, what: str, **wanted: Any) -> dict[str, Any]:
        self.chrome.set_script_timeout(60)
        return dict(self.chrome.execute_async_script(_SCRIPT, what, wanted))


@contextmanager
def foreign_page(chrome: Chrome, name: str = "127.0.0.1") -> Iterator[ForeignPage]:
    """A web server on a port of its own; by 127.0.0.1 it is of the same site, by localhost not."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = ForeignPage(chrome=chrome, url=f"http://{name}:{server.server_port}/")
        try:
            page.open()
            yield page
        finally:
            server.shutdown()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = b"<!doctype html><title>Kittens</title><body>Kittens</body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
