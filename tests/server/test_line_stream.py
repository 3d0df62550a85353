"""Lines of a client: on pipes, sockets and files, in any pieces, and with a client that does not read."""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.server.line_stream import MAX_READ_AHEAD, open_line_stream, repaired_line

pytestmark = pytest.mark.anyio

SECONDS = 10
LARGE = b'"' + b"x" * 3_000_000 + b'"'
unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such descriptors")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def pair() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a socket, as Node passes it to a child process."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.fileno(), theirs.fileno()


Kind = Callable[[], AbstractContextManager[tuple[int, int]]]
KINDS = pytest.mark.parametrize("kind", [pipe, pytest.param(pair, marks=unix)])


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=5), max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_lines_come_whole_in_whatever_pieces_they_are_written(texts: list[str], data: st.DataObject) -> None:
    written = "".join(f"{text}\n" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=4)))

    async def read() -> list[str]:
        source, end = os.pipe()
        try:
            async with open_line_stream(source, end) as lines, anyio.create_task_group() as group:
                got = []

                async def take() -> None:
                    while (line := await lines.receive()) is not None:
                        got.append(line)

                group.start_soon(take)
                for begin, stop in zip([0, *cuts], [*cuts, len(written)], strict=True):
                    os.write(end, written[begin:stop])
                    await anyio.lowlevel.checkpoint()
                os.close(end)
                end = -1
            return got
        finally:
            os.close(source)
            if end >= 0:
                os.close(end)

    assert anyio.run(read) == texts


@KINDS
async def test_a_message_of_any_size_is_written_whole_and_the_loop_continues_meanwhile(kind: Kind) -> None:
    with kind() as (source, sink):
        turns = 0
        async with open_line_stream(source, sink) as lines, anyio.create_task_group() as group:

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await anyio.lowlevel.checkpoint()

            group.start_soon(lines.send, LARGE)
            group.start_soon(lines.send, b"next")
            group.start_soon(count)
            with anyio.fail_after(SECONDS):
                assert await lines.receive() == LARGE.decode()
                assert await lines.receive() == "next"
            group.cancel_scope.cancel()
        assert turns > 3


@KINDS
async def test_a_message_that_is_given_up_is_written_whole_or_not_at_all(kind: Kind) -> None:
    with kind() as (source, sink):
        async with open_line_stream(source, sink) as lines, anyio.create_task_group() as group:
            first, second = anyio.CancelScope(), anyio.CancelScope()

            async def send(scope: anyio.CancelScope, message: bytes) -> None:
                with scope:
                    await lines.send(message)

            group.start_soon(send, first, LARGE)  # too long for the buffer, so it is written in part
            group.start_soon(send, second, b'"second"')
            group.start_soon(lines.send, b'"third"')
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            second.cancel()
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(SECONDS):
                assert [await lines.receive(), await lines.receive()] == [LARGE.decode(), '"third"']


@unix
async def test_a_client_at_a_socket_that_is_gone_is_told_by_the_end_and_by_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        async with open_line_stream(ours.fileno(), ours.fileno()) as lines:
            theirs.close()
            with anyio.fail_after(SECONDS):
                assert await lines.receive() is None
            with pytest.raises(anyio.BrokenResourceError):
                await lines.send(b"x")


async def test_a_client_at_pipes_that_is_gone_is_told_by_the_end_and_by_an_error() -> None:
    (source, end), (other, sink) = os.pipe(), os.pipe()
    async with open_line_stream(source, sink) as lines:
        os.close(end)
        os.close(other)
        with anyio.fail_after(SECONDS):
            assert await lines.receive() is None
        with pytest.raises(anyio.BrokenResourceError):
            await lines.send(b"x")
    os.close(source)
    os.close(sink)


async def test_files_are_read_and_written_too(tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b'{"a": 1}\n{"b": 2}')
    with source.open("rb") as given_in, sink.open("wb") as given_out:
        async with open_line_stream(given_in.fileno(), given_out.fileno()) as lines:
            with anyio.fail_after(SECONDS):
                assert [await lines.receive() for _ in range(3)] == ['{"a": 1}', '{"b": 2}', None]
            await lines.send(b"one")
            await lines.send(b"two")
    assert sink.read_bytes() == b"one\ntwo\n"


async def test_no_more_is_read_ahead_than_is_allowed() -> None:
    with pipe() as (source, sink):
        async with open_line_stream(source, sink) as lines:
            os.write(sink, b"x\n" * (3 * MAX_READ_AHEAD))
            with anyio.fail_after(SECONDS):
                assert await lines.receive() == "x"
            await anyio.wait_all_tasks_blocked()
            assert not lines._reading
            with anyio.fail_after(SECONDS):
                assert {await lines.receive() for _ in range(3 * MAX_READ_AHEAD - 1)} == {"x"}


@unix
async def test_descriptors_stay_as_they_were_for_processes_that_share_them() -> None:
    with pair() as (ours, theirs):
        async with open_line_stream(ours, theirs) as lines:
            await lines.send(b"x")
            with anyio.fail_after(SECONDS):
                assert await lines.receive() == "x"
            assert os.get_blocking(ours)
            assert os.get_blocking(theirs)


async def test_lines_that_were_put_back_come_first() -> None:
    with pipe() as (source, sink):
        async with open_line_stream(source, sink) as lines:
            await lines.send(b"c")
            lines.unread(["a", "b"])
            with anyio.fail_after(SECONDS):
                assert [await lines.receive() for _ in range(3)] == ["a", "b", "c"]


@given(st.text(st.characters(), max_size=5))
def test_a_line_without_halves_of_pairs_keeps_its_value_and_one_with_them_can_be_encoded(text: str) -> None:
    line = repaired_line(json.dumps({"a": text}))
    line.encode()
    value = json.loads(line)["a"]
    value.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert value == text
