"""The guest that is made ahead of the next program."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
from guest_harness import MANIFEST

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.runs import guests as module
from codemode_mcp.runs.guests import SpareGuest
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.images import Image

pytestmark = pytest.mark.anyio

LIMIT = 64 * 1024 * 1024


@pytest.fixture
def image(engine: Engine) -> Image:
    return engine.threads.submit(engine.image, MANIFEST).result()


@pytest.fixture
def guests() -> Iterator[SpareGuest]:
    guests = SpareGuest()
    yield guests
    guests.close()


async def until_made(guests: SpareGuest) -> None:
    with anyio.fail_after(10):
        while guests._guest is None:
            await anyio.lowlevel.checkpoint()


async def test_a_program_gets_the_guest_that_was_made_after_the_one_before(
    guests: SpareGuest, engine: Engine, image: Image
) -> None:
    first = guests.take(engine, image, LIMIT)
    guests.give_back(first)
    await until_made(guests)
    made = guests._guest
    assert made is not first
    assert first._closed
    assert guests.take(engine, image, LIMIT) is made
    made.close()


async def test_none_is_made_ahead_after_a_program_was_suspended(
    guests: SpareGuest, engine: Engine, image: Image
) -> None:
    first = guests.take(engine, image, LIMIT)
    guests.give_back(first, make_next=False)
    for _ in range(2 * module.ROUNDS):
        await anyio.lowlevel.checkpoint()
    assert first._closed
    assert guests._guest is None


async def test_a_guest_of_another_limit_is_never_given_out(guests: SpareGuest, engine: Engine, image: Image) -> None:
    guests.give_back(guests.take(engine, image, LIMIT))
    await until_made(guests)
    made = guests._guest
    assert made is not None
    with guests.take(engine, image, LIMIT // 2) as other:
        assert other is not made
    assert made._closed


async def test_where_programs_follow_each_other_immediately_each_gets_its_own(
    guests: SpareGuest, engine: Engine, image: Image
) -> None:
    seen = [guests.take(engine, image, LIMIT) for _ in range(3)]
    for guest in seen:
        guests.give_back(guest)
    assert len({id(guest) for guest in seen}) == 3
    assert sum(not guest._closed for guest in seen) <= module.MAX_OVER
    await until_made(guests)
    assert all(guest._closed for guest in seen)


async def test_guests_that_are_over_are_freed_before_another_is_made(
    guests: SpareGuest, engine: Engine, image: Image
) -> None:
    first, second = (guests.take(engine, image, LIMIT) for _ in range(2))
    guests.give_back(first)
    with guests.take(engine, image, LIMIT):
        assert first._closed
    second.close()


async def test_a_guest_that_cannot_be_made_ahead_is_left_to_the_program_that_wants_it(
    guests: SpareGuest, engine: Engine, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = anyio.Event()

    def refuse(*_: object, **__: object) -> None:
        tried.set()
        raise ProgramError("memory_limit_exceeded", "the names alone take more")

    first = guests.take(engine, image, LIMIT)
    with monkeypatch.context() as patched:
        patched.setattr(module, "Guest", refuse)
        guests.give_back(first)
        with anyio.fail_after(10):
            await tried.wait()
        with pytest.raises(ProgramError, match="names alone"):
            guests.take(engine, image, LIMIT)
    with guests.take(engine, image, LIMIT) as guest:
        assert not guest._closed
