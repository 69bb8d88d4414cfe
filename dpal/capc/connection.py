"""A connection of a party with the guardian: mutual TLS 1.3, frames, limits of time and size."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from pydantic import BaseModel

from dpal.capc.certificate_authority import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REVOKED,
    Identity,
    PartyRole,
    fault_of,
    load_revoked,
    name_in,
)
from dpal.capc.frames import LENGTH_BYTES, Parcel, from_frame, to_frame
from dpal.errors import DpalError, ProtocolError, VoteAborted

_PART: Final = 1 << 16  # bytes: a slow line takes long for a frame, not for a part of it
_GONE_SECONDS: Final = 60


@dataclass(eq=False)
class Connection:
    """One end.

    Attributes:
      reader: of the other's bytes.
      writer: of ours.
      limit: bytes of a frame, at most.
      other: what the other end is called in messages.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    limit: int
    other: str
    _written: int = 0

    def __post_init__(self) -> None:
        _notice_when_gone(self.writer)

    async def send(self, said: Parcel | BaseModel, *, patience: float) -> None:
        """Sends a frame.

        Raises:
          VoteAborted: the other end is gone, or takes nothing for as long as patience lasts.
        """
        data = to_frame(said)
        if self.writer.is_closing():  # asyncio's TLS may raise anything else then
            raise VoteAborted(f"the connection to {self.other} is closed")
        try:
            length = len(data).to_bytes(LENGTH_BYTES, "big")
            if len(data) > _PART:  # a copy of a long frame costs more than one more write
                self.writer.write(length)
                self.writer.write(data)
            else:
                self.writer.write(length + data)
            self._written += LENGTH_BYTES + len(data)
            taken = self._taken()
            while not await self._drained(patience):
                if self._taken() <= taken:
                    raise VoteAborted(f"{self.other} takes no message any more")
                taken = self._taken()
        except (OSError, ssl.SSLError) as error:
            raise VoteAborted(f"the connection to {self.other} broke") from error

    async def receive(self, *, patience: float | None) -> Any:
        """The next frame: a parcel or a control message.

        Args:
          patience: seconds without a part of it; None where it may take for ever.

        Raises:
          VoteAborted: the other end is gone or silent.
          ProtocolError: it sent something else than frames.
        """
        try:
            length = int.from_bytes(await self._read(LENGTH_BYTES, patience), "big")
            if not 0 < length <= self.limit:
                raise ProtocolError(f"{self.other} sent a frame of a size that none can have")
            data = bytearray()
            while len(data) < length:
                data += await self._read(min(_PART, length - len(data)), patience)
            return from_frame(bytes(data))
        except TimeoutError as error:
            raise VoteAborted(f"{self.other} was silent for too long") from error
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError) as error:
            raise VoteAborted(
                f"{self.other} closed the connection, or does not accept this party's certificate"
            ) from error

    def _taken(self) -> int:
        """Bytes that have left this process."""
        return self._written - self.writer.transport.get_write_buffer_size()

    async def _drained(self, patience: float) -> bool:
        try:
            async with asyncio.timeout(patience):
                await self.writer.drain()
        except TimeoutError:
            return False
        return True

    async def _read(self, count: int, patience: float | None) -> bytes:
        async with asyncio.timeout(patience):
            return await self.reader.readexactly(count)

    async def close(self) -> None:
        """Ends it; what was sent may still arrive."""
        self.writer.close()
        try:
            async with asyncio.timeout(1):
                await self.writer.wait_closed()
        except (TimeoutError, OSError, ssl.SSLError):
            self.writer.transport.abort()


def server_context(identity: Identity) -> ssl.SSLContext:
    """TLS 1.3 for the guardian, which asks everybody for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return _prepared(context, identity)


def client_context(identity: Identity) -> ssl.SSLContext:
    """TLS 1.3 for the other parties, which require the guardian's name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    return _prepared(context, identity)


async def connect(
    identity: Identity, host: str, port: int, guardian: str, limit: int, *, patience: float
) -> Connection:
    """Connects a party to the guardian.

    Raises:
      VoteAborted: nobody answers there, or somebody else than the guardian.
    """
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=client_context(identity), server_hostname=guardian
            )
    except ssl.SSLError as error:
        raise VoteAborted(
            f"whoever answers at {host}:{port} has no certificate of the guardian {guardian}"
        ) from error
    except (TimeoutError, OSError) as error:
        raise VoteAborted(
            f"no guardian answers at {host}:{port}; start it, or correct the address"
        ) from error
    connection = Connection(reader, writer, limit, f"the guardian {guardian}")
    try:
        if peer_of(writer, identity) != (guardian, PartyRole.GUARDIAN):
            raise VoteAborted(f"whoever answers at {host}:{port} is not the guardian {guardian}")
    except DpalError:
        await connection.close()
        raise
    return connection


def peer_of(writer: asyncio.StreamWriter, identity: Identity) -> tuple[str, PartyRole]:
    """Name and role of the other end, by a certificate that counts now.

    Raises:
      ProtocolError: its certificate was revoked, or counts no more.
    """
    session = writer.get_extra_info("ssl_object")
    shown = session.getpeercert(binary_form=True) if session else None
    if shown is None:
        raise ProtocolError("somebody connected without a certificate")
    certificate = x509.load_der_x509_certificate(shown)
    name, role = name_in(certificate)
    # Read anew: somebody may have been revoked since this process began.
    revoked = load_revoked(identity.folder / REVOKED, identity.authority)
    if problem := fault_of(certificate, identity.authority, revoked):
        raise ProtocolError(f"the certificate of {name} {problem}")
    return name, role


def _notice_when_gone(writer: asyncio.StreamWriter) -> None:
    """Has the system end a connection to a machine that is gone without a word."""
    line = writer.get_extra_info("socket")
    if line is None:
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _GONE_SECONDS // 2),
        ("TCP_KEEPINTVL", _GONE_SECONDS // 6),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 1000 * _GONE_SECONDS),
    ):
        if (option := getattr(socket, name, None)) is not None:  # not on every system
            line.setsockopt(socket.IPPROTO_TCP, option, value)


def _prepared(context: ssl.SSLContext, identity: Identity) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(identity.folder / CERTIFICATE, identity.folder / KEY)
    context.load_verify_locations(identity.folder / AUTHORITY)
    return context
