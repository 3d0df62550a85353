"""Tests of what is sealed opens for what it was sealed for, and for nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codemode_mcp.stores import seal as module
from codemode_mcp.stores.seal import Refused, Seal

KEY, OTHER = (bytes(range(start, start + 32)) for start in (1, 101))
PLACE = {"owner": "stdio:me", "run": "run-1", "field": "snapshot"}
SEALS: dict[str, Callable[[], Seal]] = {"digest": Seal, "encrypted": lambda: Seal([KEY])}
TEXT = b'{"state": "waiting", "calls": []}' * 100

kinds = pytest.mark.parametrize("kind", SEALS)
places = st.text(st.characters(codec=None), max_size=8)  # halves of surrogate pairs included


def why(seal: Seal, sealed: bytes, place: dict[str, str] = PLACE) -> str:
    with pytest.raises(Refused) as caught:
        seal.open(sealed, **place)
    assert caught.value.code == "snapshot_restore_failed"
    assert caught.value.message == f"the suspended program cannot be restored: {caught.value.why}"
    return caught.value.why


@kinds
@given(data=st.binary(max_size=3000) | st.binary(max_size=30).map(lambda each: each * 200), owner=places, run=places)
@example(data=b"", owner="", run="")
def test_what_is_sealed_opens_again(kind: str, data: bytes, owner: str, run: str) -> None:
    seal = SEALS[kind]()
    sealed = seal.seal(data, owner=owner, run=run, field="f")
    assert seal.open(sealed, owner=owner, run=run, field="f") == data
    assert len(sealed) <= len(data) + 64


@kinds
@pytest.mark.parametrize("data", [b"short", TEXT], ids=["short", "compressed"])
def test_no_byte_can_be_changed_added_or_taken_away(kind: str, data: bytes) -> None:
    seal = SEALS[kind]()
    sealed = seal.seal(data, **PLACE)
    for index in range(len(sealed)):
        for bit in (1, 2, 128):
            changed = bytearray(sealed)
            changed[index] ^= bit
            why(seal, bytes(changed))
        why(seal, sealed[:index])
    why(seal, sealed + b"\0")
    why(seal, b"")


@kinds
@given(
    place=st.fixed_dictionaries(dict.fromkeys(PLACE, st.sampled_from(["a", "b", "ab", ""]) | places)), data=st.data()
)
def test_what_was_sealed_for_something_else_is_refused(kind: str, place: dict[str, str], data: st.DataObject) -> None:
    seal = SEALS[kind]()
    sealed = seal.seal(TEXT, **place)
    other = {**place, data.draw(st.sampled_from(sorted(place))): data.draw(places)}
    # What moves from one part of the place to the next makes another place.
    shifted = {**place, "owner": place["owner"] + place["run"], "run": ""}
    for each in (other, shifted):
        if each != place:
            assert why(seal, sealed, each) == "it is damaged, or was stored for something else"
        else:
            assert seal.open(sealed, **each) == TEXT


def test_what_another_key_has_sealed_is_refused() -> None:
    sealed = Seal([OTHER]).seal(TEXT, **PLACE)
    assert why(Seal([KEY]), sealed) == "it is encrypted with another key than those of store.encryptionKey"


def test_without_a_key_nothing_encrypted_opens_and_with_one_nothing_else() -> None:
    assert why(Seal(), Seal([KEY]).seal(TEXT, **PLACE)) == "it is encrypted, and no store.encryptionKey is configured"
    why_not = why(Seal([KEY]), Seal().seal(TEXT, **PLACE))
    assert why_not == "it is not encrypted, although store.encryptionKey is configured"


def test_with_several_keys_the_first_seals_and_all_open() -> None:
    before, after = Seal([KEY]), Seal([OTHER, KEY])
    assert after.open(before.seal(TEXT, **PLACE), **PLACE) == TEXT
    sealed = after.seal(TEXT, **PLACE)
    assert Seal([OTHER]).open(sealed, **PLACE) == TEXT
    why(before, sealed)


def test_another_format_is_said_to_be_one() -> None:
    sealed = Seal().seal(TEXT, **PLACE)
    assert why(Seal(), b"CME2" + sealed[4:]) == "it is stored in another format"


def test_of_what_is_encrypted_nothing_can_be_read_and_nothing_is_sealed_alike_twice() -> None:
    seal = Seal([KEY])
    data = os.urandom(900)
    first, second = seal.seal(data, **PLACE), seal.seal(data, **PLACE)
    assert data[:8] not in first
    assert PLACE["owner"].encode() not in first
    # Format, length and the name of the key are the same; the nonce and all after it are not.
    assert first[:21] == second[:21]
    assert first[21:33] != second[21:33]
    assert KEY.hex() not in repr(seal)


def test_what_gains_is_compressed_and_what_does_not_is_not() -> None:
    assert len(Seal().seal(TEXT, **PLACE)) < len(TEXT) // 4
    packed = zlib.compress(os.urandom(20_000), 1)
    assert len(Seal().seal(packed, **PLACE)) == len(packed) + 45


def forged(length: int, packed: bytes) -> bytes:
    head = module._HEADER.pack(module.MAGIC, module._COMPRESSED, length)
    return head + module._digest(head, module._binding(*PLACE.values()), packed) + packed


def test_what_is_compressed_ends_where_it_says() -> None:
    packed = zlib.compress(TEXT)
    assert Seal().open(forged(len(TEXT), packed), **PLACE) == TEXT
    for wrong in (packed + b"x", packed[:-1], b"no zlib"):
        assert why(Seal(), forged(len(TEXT), wrong)) == "it is damaged"
    for length in (len(TEXT) - 1, len(TEXT) + 1):
        assert why(Seal(), forged(length, packed)) == "it is damaged"


def test_a_bomb_is_not_unpacked() -> None:
    small = Seal(max_bytes=10_000)
    bomb = Seal().seal(bytes(1_000_000), **PLACE)
    assert why(small, bomb) == "it needs 1000000 bytes, more than the limit of 10000"
    # Of one that lies about its size, sealed again by a person who can write the database.
    assert why(small, forged(5000, bomb[45:])) == "it is damaged"
    # What is too large to be opened compressed is not compressed.
    assert small.open(small.seal(bytes(20_000), **PLACE), **PLACE) == bytes(20_000)


def test_keys_are_derived_as_hkdf_says() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    expected = HKDF(SHA256(), length=32, salt=b"codemode-mcp store", info=b"id").derive(KEY)
    assert module._expand(module._extract(KEY), b"id") == expected
    assert Seal([KEY]).seal(b"", **PLACE)[13:21] == expected[:8]


def test_what_this_release_has_sealed_opens_in_the_next() -> None:
    """Recorded: any caller that changes the format has to change its number, and read this one too."""
    plain = Seal().seal(b"hello", **PLACE)
    assert hashlib.sha256(plain).hexdigest() == "b87dd457c28a5e72a8ab4712db18d287c97f2f08e33eade1f8399a49f69b3afe"
    sealed = bytes.fromhex(
        "434d45310105000000000000008c8fd33c4a38e326198c005b8267c74b0625248593b126712060d67027dabff0d7a01ccd8d317d70ce"
    )
    assert Seal([KEY]).open(sealed, **PLACE) == b"hello"


def test_the_cipher_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from codemode_mcp.stores.seal import Seal; seal = Seal([bytes(32)]);"
        "assert not any(name.startswith('cryptography') for name in sys.modules);"
        "seal.seal(b'', owner='', run='', field=''); assert 'cryptography' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
