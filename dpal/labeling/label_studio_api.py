"""The part of Label Studio's HTTP interface that a campaign needs.

Its own Python package wants an older numpy than we do, so its documented interface is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from dpal.errors import LabelStudioError
from dpal.labeling.label_studio_questions import KEY

_PAGE = 100
_AT_ONCE = 250  # tasks of one request, and no more than so many characters
_CHARACTERS = 20_000_000
_SECONDS = 60.0
_EXPORT_SECONDS = 600.0
_RENEW = (
    "copy a new token from its page Account & Settings into LABEL_STUDIO_API_KEY or the Prefect "
    "Secret block dpal-label-studio-token"
)


class LabelStudio:
    """A connection that speaks for one user.

    Args:
      url: where the server answers.
      token: a personal access token, or a legacy one.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._token = token.strip()
        self._access: str | None = None
        self._client = httpx.Client(base_url=url, timeout=_SECONDS, follow_redirects=True)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def find_project(self, marker: str) -> int | None:
        """The project whose description holds a marker."""
        page = 1
        while True:
            asked = {"page": page, "page_size": _PAGE, "include": "id,description"}
            answer = self._ask("GET", "/api/projects/", params=asked).json()
            for project in answer["results"]:
                if marker in (project.get("description") or ""):
                    return int(project["id"])
            if not answer.get("next"):
                return None
            page += 1

    def create_project(self, **settings: Any) -> int:
        """Makes a project and returns its number."""
        return int(self._ask("POST", "/api/projects/", json=settings).json()["id"])

    def project(self, number: int) -> dict[str, Any] | None:
        """What the server says of a project; None if it is gone."""
        answer = self._ask("GET", f"/api/projects/{number}/", gone=True)
        return None if answer is None else dict(answer.json())

    def delete_project(self, number: int) -> None:
        """Removes a project with all of its tasks and annotations, if it is there."""
        self._ask("DELETE", f"/api/projects/{number}/", gone=True)

    def add_tasks(
        self,
        project: int,
        tasks: Sequence[Mapping[str, str]],
        predictions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Imports tasks.

        Args:
          project: its number.
          tasks: each given as its data.
          predictions: by a task's key, an answer that is filled in before anybody gives one.
        """
        known = predictions or {}
        for some in _parts(tasks):
            sent = [_with_prediction(task, known) for task in some]
            self._ask("POST", f"/api/projects/{project}/import", json=sent)

    def upload(self, project: int, name: str, content: bytes) -> str:
        """Gives the server a file to keep; returns the address that tasks use."""
        answer = self._ask(
            "POST",
            f"/api/projects/{project}/import",
            params={"commit_to_project": "false"},
            files={name: (name, content, "image/png")},
        ).json()
        number = answer["file_upload_ids"][0]
        kept = self._ask("GET", f"/api/import/file-upload/{number}").json()["file"]
        return f"/data/{kept}"

    def export(self, project: int) -> Iterator[dict[str, Any]]:
        """All tasks of a project with their annotations."""
        asked = {"exportType": "JSON", "download_all_tasks": "true"}
        path = f"/api/projects/{project}/export"
        answer = self._ask("GET", path, params=asked, timeout=_EXPORT_SECONDS)
        yield from answer.json()

    def delete_annotation(self, number: int) -> None:
        """Removes an annotation, so that its task is asked again."""
        self._ask("DELETE", f"/api/annotations/{number}/", gone=True)

    def call_back(self, project: int, url: str, headers: Mapping[str, str]) -> bool:
        """Lets the server call an address whenever somebody labeled something.

        Returns:
          Whether it will. It refuses private addresses unless it was started to allow them.
        """
        hook = {
            "project": project,
            "url": url,
            "send_payload": False,
            "send_for_all_actions": False,
            "headers": dict(headers),
            "actions": ["ANNOTATION_CREATED", "ANNOTATION_UPDATED", "TASKS_DELETED"],
        }
        try:
            webhooks = self._ask("GET", "/api/webhooks/", params={"project": project}).json()
            if not any(webhook["url"] == url for webhook in webhooks):
                self._ask("POST", "/api/webhooks/", json=hook)
        except LabelStudioError:
            return False
        return True

    def _ask(self, method: str, path: str, *, gone: bool = False, **options: Any) -> Any:
        """One request; a personal token is exchanged for a short-lived one first.

        Args:
          method: of the request.
          path: below the server's address.
          gone: whether None is an answer where the thing is not there.
          options: of the request.
        """
        answer = self._send(method, path, options)
        if answer.status_code == 401 and self._access is not None:
            self._access = None  # it lives for minutes only
            answer = self._send(method, path, options)
        if gone and answer.status_code == 404:
            return None
        self._require(answer, method)
        return answer

    def _send(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": self._authorization()}
        return self._reach(method, path, headers=headers, **options)

    def _authorization(self) -> str:
        if self._token.count(".") != 2:
            return f"Token {self._token}"
        if self._access is None:
            answer = self._reach("POST", "/api/token/refresh", json={"refresh": self._token})
            self._require(answer, "POST")
            self._access = str(answer.json()["access"])
        return f"Bearer {self._access}"

    def _reach(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.TransportError as error:
            raise LabelStudioError(
                self.url,
                f"does not answer ({type(error).__name__})",
                "start it or correct labeler.label_studio.url",
            ) from error

    def _require(self, answer: httpx.Response, method: str) -> None:
        """Requires that a request was granted. No answer's text is told: it may name records."""
        if answer.is_success:
            return
        code = answer.status_code
        if code == 401:
            raise LabelStudioError(self.url, "does not accept the token", _RENEW)
        if code == 403:
            raise LabelStudioError(
                self.url, "refuses (403)", "give the token's user the right to make projects"
            )
        if code == 404:
            advice = "it is removed by hand at this moment, or this is another server; look again"
            raise LabelStudioError(self.url, "does not know the project or the path", advice)
        reason = f"answered {code} to {method}"
        raise LabelStudioError(self.url, reason, "look into its log and try again")


def _with_prediction(
    task: dict[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    found = known.get(task["data"].get(KEY, ""))
    return task if found is None else {**task, "predictions": [found]}


def _parts(tasks: Sequence[Mapping[str, str]]) -> Iterator[list[dict[str, Any]]]:
    """Tasks as their server takes them, in parts that fit into one request."""
    part: list[dict[str, Any]] = []
    size = 0
    for task in tasks:
        length = sum(map(len, task.values()))
        if part and (len(part) == _AT_ONCE or size + length > _CHARACTERS):
            yield part
            part, size = [], 0
        part.append({"data": dict(task)})
        size += length
    if part:
        yield part
