"""Who chooses gets the key and the row that it chose; nobody else can tell which."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpal.capc import transfer_extension
from dpal.capc.base_transfers import TRANSFERS, choose_keys, offer_keys, offered_keys
from dpal.capc.transfer_extension import BALLOTS, FEATURES, OUTCOMES, RowHash, transposed_bits
from dpal.errors import ProtocolError
from dpal.randomness import secure
from tests.capc.transfers import FALSE_ALARM, paired, uniform_chance

DRAWN = np.random.default_rng(1)


def seed() -> bytes:
    return secure().words(4).tobytes()


@pytest.mark.parametrize("choices", [
    np.zeros(TRANSFERS, np.uint8), np.ones(TRANSFERS, np.uint8),
    DRAWN.integers(0, 2, TRANSFERS, dtype=np.uint8),
], ids=["none", "all", "some"])  # fmt: skip
def test_a_base_transfer_gives_the_key_that_was_chosen_and_not_the_other(choices):
    own = seed()
    points, chosen = choose_keys(offer_keys(own), choices, seed())
    offered = offered_keys(own, points)
    assert (chosen == offered[choices, np.arange(TRANSFERS)]).all()
    every = {row.tobytes() for row in offered.reshape(-1, 32)}
    assert len(every) == 2 * TRANSFERS, "each key is its own"
    assert not {row.tobytes() for row in chosen} & {
        row.tobytes() for row in offered[1 - choices, np.arange(TRANSFERS)]
    }


def test_keys_serve_one_pair_and_one_batch():
    """Other seeds have nothing in common, not even points."""
    offers = {offer_keys(seed()).tobytes() for _ in range(4)}
    assert len(offers) == 4
    offer, choices = offer_keys(seed()), np.ones(TRANSFERS, np.uint8)
    first, second = (choose_keys(offer, choices, seed()) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert not {row.tobytes() for row in one} & {row.tobytes() for row in other}


IDENTITY = np.array([1, *[0] * 31], np.uint8)
ORDER_8 = np.frombuffer(
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), np.uint8
)  # one of the points of small order that libsodium lists
NO_POINT = np.array([2, *[0] * 31], np.uint8)


@pytest.mark.parametrize("wrong", [IDENTITY, ORDER_8, NO_POINT], ids=["zero", "small", "none"])
def test_points_that_are_none_of_the_group_are_refused(wrong):
    with pytest.raises(ProtocolError):
        choose_keys(wrong, np.ones(TRANSFERS, np.uint8), seed())
    own = seed()
    points, _ = choose_keys(offer_keys(own), np.ones(TRANSFERS, np.uint8), seed())
    points = points.copy()
    points[77] = wrong
    with pytest.raises(ProtocolError):
        offered_keys(own, points)


@pytest.mark.parametrize("count", [8, 64, 10_000])
def test_extended_rows_are_apart_by_the_secret_where_1_was_chosen(count):
    pair = paired()
    for choices in (np.zeros(count, np.uint8), np.ones(count, np.uint8),
                    DRAWN.integers(0, 2, count, dtype=np.uint8)):  # fmt: skip
        _, own, other = pair.rows(choices, FEATURES)
        assert own.shape == (count, 2)
        assert (other == own ^ choices[:, None].astype(np.uint64) * pair.secret).all()


def test_every_purpose_has_rows_of_its_own():
    pair, choices = paired(), np.ones(640, np.uint8)
    rows = [pair.rows(choices, purpose)[1] for purpose in (FEATURES, OUTCOMES, BALLOTS)]
    assert len({row.tobytes() for part in rows for row in part}) == 3 * 640


@pytest.mark.statistical
def test_what_the_site_is_sent_is_uniform_whatever_was_chosen(monkeypatch):
    """160,000 bytes of equal choices; a false alarm in ten million runs."""
    pair, choices = paired(), np.ones(10_000, np.uint8)
    sent, _, rows = pair.rows(choices, FEATURES)
    assert uniform_chance(sent) > FALSE_ALARM
    assert uniform_chance(rows) > FALSE_ALARM
    # Power: with one key in the place of both, what is sent is the choices.
    columns = transfer_extension._columns
    monkeypatch.setattr(
        transfer_extension, "_columns", lambda keys, *more: columns(pair.offered[0], *more)
    )
    assert uniform_chance(pair.rows(choices, FEATURES)[0]) < FALSE_ALARM


def test_rows_are_the_columns_turned():
    columns = DRAWN.integers(0, 256, (TRANSFERS, 50), dtype=np.uint8)
    bits = np.unpackbits(columns, axis=1, bitorder="little").T
    expected = np.packbits(bits, axis=1, bitorder="little")
    assert (transposed_bits(columns).view(np.uint8) == expected).all()


def test_the_hash_is_that_of_its_source_block_by_block():
    """pi(pi(x) + i) + pi(x), with + bit by bit, computed one block at a time."""
    cipher = Cipher(algorithms.AES128(bytes(range(16))), modes.ECB()).encryptor()

    def plain(row: bytes, index: bytes) -> bytes:
        once = cipher.update(row)
        mixed = bytes(a ^ b for a, b in zip(once, index, strict=True))
        return bytes(a ^ b for a, b in zip(cipher.update(mixed), once, strict=True))

    rows, hashed = secure().words(10).reshape(5, 2), RowHash(bytes(range(16)))
    found = hashed.words(rows, 2, first=7, blocks=3)
    for place, row in enumerate(rows):
        for block in range(3):
            index = (7 + place).to_bytes(8, "little") + ((2 << 32) + block).to_bytes(8, "little")
            assert found[place, block].tobytes() == plain(row.tobytes(), index)
    numbers = hashed.numbers(rows, 2, 7, 10)
    assert (numbers == found.view("<u4").reshape(5, 12)[:, :10]).all()
