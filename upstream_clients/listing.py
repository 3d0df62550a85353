"""All pages of a server's lists, within limits, and tool lists on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from upstream_clients.json_values import strings_in
from upstream_clients.list_repair import HINTS, ICONS, MAX_ITEMS, META, cap_problems, open_page, read_items, read_tools
from upstream_clients.private_files import make_private_folder, open_private
from upstream_clients.redaction import secrets_of
from upstream_clients.tools import NO_HINT, Annotations, CacheHint, JsonObject, Tool, UpstreamView, combined, read_hint

if TYPE_CHECKING:
    from pathlib import Path

    from upstream_clients.list_repair import ItemKind
    from upstream_clients.spec import UpstreamSpec


logger = logging.getLogger(__name__)

MAX_PAGES = 1_000
MAX_TOOLS = 100_000
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of the pages of a list of prompts or templates, with the fields that are not kept."""

LIST_SECONDS = 10.0
"""Seconds for all pages after the first."""

SendFn = Callable[[str, Mapping[str, Any]], Awaitable[JsonObject]]


class Listing(NamedTuple):
    """All tools of one server, and the problems of its list."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...]
    hint: CacheHint = NO_HINT


class ItemListing(NamedTuple):
    """All prompts, resource templates or resources of one server, and the problems of its list."""

    items: tuple[JsonObject, ...]
    problems: tuple[str, ...]
    hint: CacheHint = NO_HINT


class _Pages(NamedTuple):
    """The items of all pages. `size`, in bytes, and `pages` are 0 if they were not counted."""

    items: list[object]
    problems: list[str]
    size: int
    pages: int
    hint: CacheHint


async def list_tools(send: SendFn, server: str = "") -> Listing:
    """Fetch all pages through `send` and return the tools. Any exception of `send` is passed on.

    `server`: the name for the log.
    """
    fetched = await _fetch(send, "tools/list", "tools", MAX_TOOLS, f"{MAX_TOOLS} tools")
    tools, bad_tools = read_tools(fetched.items)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "server %r: answer to tools/list: %d tools (%d with an output schema, %d with annotations), %d bytes in %d "
            "pages",
            server,
            len(tools),
            sum(tool.output_schema is not None for tool in tools),
            sum(tool.annotations != Annotations() for tool in tools),
            fetched.size,
            fetched.pages,
        )
    return Listing(tools, cap_problems([*fetched.problems, *bad_tools]), fetched.hint)


async def list_items(send: SendFn, kind: ItemKind) -> ItemListing:
    """Fetch all pages through `send` and return the items. Any exception of `send` is passed on."""
    limit = f"{MAX_ITEMS} items or {MAX_BYTES} bytes"
    fetched = await _fetch(send, kind.method, kind.key, MAX_ITEMS, limit, MAX_BYTES)
    items, bad_items = read_items(kind, fetched.items)
    return ItemListing(items, cap_problems([*fetched.problems, *bad_items]), fetched.hint)


async def _fetch(
    send: SendFn, method: str, key: str, max_items: int, limit: str, max_bytes: float = math.inf
) -> _Pages:
    # The sizes of tools are not limited here: a message has a limit, and counting would delay the start of a server.
    counts = max_bytes < math.inf or logger.isEnabledFor(logging.DEBUG)
    size = pages = 0
    items: list[object] = []
    deadline = anyio.current_time() + LIST_SECONDS
    problems: list[str] = []
    hints: list[CacheHint] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        raw: JsonObject | None = None
        # The caller limits the time of the first page. A later page has a limit of its own, so that a server which is
        # slow at the end does not lose its first items.
        with anyio.CancelScope(deadline=math.inf if cursor is None else deadline):
            raw = await send(method, {} if cursor is None else {"cursor": cursor})
        if raw is None:
            problems.append(f"{method} has more pages after {LIST_SECONDS:g} s; the rest is left out")
            break
        if counts:
            size, pages = size + len(json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace")), pages + 1
        hints.append(read_hint(raw))
        page = open_page(raw, method, key)
        items += page.items
        problems += page.problems
        cursor = page.next_cursor
        if cursor is None:
            break
        if cursor in seen:
            problems.append(f"{method} gave the same cursor twice; stopped there")
            break
        if len(items) >= max_items or size > max_bytes:
            problems.append(f"{method} has more than {limit}; the rest is left out")
            break
        seen.add(cursor)
    else:
        problems.append(f"{method} has more than {MAX_PAGES} pages; the rest is left out")
    return _Pages(items[:max_items], problems, size, pages, combined(hints))


# Tool lists of servers on disk, so that the next process knows their tools before it starts a server.
#
# Each definition of a server has its own file, named by a keyed hash of the definition. The hash includes secrets, such
# as values of `env` and `headers`. Without the key, a reader of the folder cannot test guesses of these secrets against
# the file names. A listing that quotes a secret is not saved. This module does not need the MCP SDK.


FORMAT = 3
"""Files of another format are ignored, and removed as the oldest."""

FRESH_SECONDS = 24 * 3600.0
"""Age up to which a listing replaces a connection at the start. Later, the server may have been updated."""

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_FILES = 200
"""Number of files; more are removed, the oldest first."""

_KEY_FILE = "key"
_KEY_BYTES = 32
_SUFFIX = ".json"
_MIN_QUOTE_LENGTH = 8
"""Shorter values (`info`, `true`, `8080`) occur in many descriptions by chance."""


class SavedListing(NamedTuple):
    """A listing of an earlier process.

    Attributes:
        view: a view with the listing; its state has no meaning.
        fresh: True if it is younger than `FRESH_SECONDS`.
    """

    view: UpstreamView
    fresh: bool


class ListingCache(Struct, frozen=True):
    """Listings in a folder. No method raises `OSError`: the product works without this cache.

    Attributes:
        folder: created when it is needed.
        clock: seconds since the epoch, like the times of files.
    """

    folder: Path
    clock: Callable[[], float] = time.time

    def load(self, spec: UpstreamSpec) -> SavedListing | None:
        """Return the last saved listing of this definition, if its file is valid and private."""
        key = self._key(create=False)
        if key is None:
            return None
        try:
            data, changed_at = _read(self.folder / (_digest(key, spec) + _SUFFIX), MAX_FILE_BYTES)
            view = _view_of(spec, msgspec.convert(json.loads(data), _SavedView))
        except (OSError, ValueError, RecursionError) as error:
            if not isinstance(error, FileNotFoundError):
                logger.info("the saved listing of server %r is not used: %s", spec.name, type(error).__name__)
            return None
        return SavedListing(view, -60 < self.clock() - changed_at < FRESH_SECONDS)

    def save(self, spec: UpstreamSpec, view: UpstreamView) -> None:
        """Save the listing of a view, and remove the oldest files if there are too many.

        Without its resources, if these are the reason that it cannot be saved.
        """
        data = _encode(spec, view)
        if data == b"" and view.resource_list:
            data = _encode(spec, replace(view, resource_list=None))
        if data is None:
            return
        if not data:
            logger.debug("the listing of server %r is not saved: too large, or it quotes a secret", spec.name)
        try:
            make_private_folder(self.folder)
            key = self._key(create=True)
            if key is None:
                return
            path = self.folder / (_digest(key, spec) + _SUFFIX)
            if data:
                _replace(path, data)
                self._prune()
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.info("the listing of server %r could not be saved: %s", spec.name, error)

    def _key(self, *, create: bool) -> bytes | None:
        path = self.folder / _KEY_FILE
        key = _key_at(path)
        if key is not None or not create:
            return key
        # Several processes may list at the same time: the first one creates the key for all of them.
        created = secrets.token_bytes(_KEY_BYTES)
        with suppress(FileExistsError):
            _create(path, created)
            return created
        key = _key_at(path)
        if key is None:  # the file is not a key
            _replace(path, created)
            key = created
        return key

    def _prune(self) -> None:
        files = []
        for path in self.folder.iterdir():
            if path.suffix in (_SUFFIX, ".part"):
                with suppress(OSError):
                    files.append((path.stat().st_mtime, path))
        for _, path in sorted(files)[: max(0, len(files) - MAX_FILES)]:
            path.unlink(missing_ok=True)


def _digest(key: bytes, spec: UpstreamSpec) -> str:
    definition = [
        FORMAT,
        *(spec.name, spec.transport, spec.command, spec.args, spec.cwd, spec.url),
        *(spec.document, spec.document_version, spec.other_origins),
        *(sorted(spec.env.items()), sorted(spec.withheld), sorted(spec.headers.items()), spec.secrets),
        *(() if spec.credentials is None else astuple(spec.credentials)),
    ]
    return hashlib.blake2b(json.dumps(definition).encode(), key=key, digest_size=16).hexdigest()


def quotes(value: Any, secrets: Iterable[str]) -> bool:
    """Return True if a JSON value quotes one of the secrets, in a text or a key. Short secrets do not count."""
    long = [secret for secret in secrets if len(secret) >= _MIN_QUOTE_LENGTH]
    return bool(long) and any(map(secrets_of(tuple(long)).find, strings_in(value)))


class _SavedView(msgspec.Struct):
    """The content of a file. `tools` is as in `tools/list`."""

    instructions: str | None
    server_version: str | None
    era: Literal["modern", "legacy"] | None
    protocol_version: str | None
    resources: bool
    prompts: bool
    completions: bool
    format: int
    tools: list[Any]
    problems: tuple[str, ...]
    asks_for_roots: bool
    server_name: str | None
    logged_in: bool
    prompt_list: tuple[dict[str, Any], ...] | None
    template_list: tuple[dict[str, Any], ...] | None
    resource_list: tuple[dict[str, Any], ...] | None
    server_info: dict[str, Any] | None
    logging: bool
    resource_subscriptions: bool

    @staticmethod
    def of(view: UpstreamView) -> _SavedView:
        fields = {name: getattr(view, name) for name in _VIEW_FIELDS}
        return _SavedView(**fields, format=FORMAT, tools=[_tool_to_json(tool) for tool in view.tools])


_VIEW_FIELDS = [name for name in _SavedView.__struct_fields__ if name not in ("format", "tools")]


def _tool_to_json(tool: Tool) -> dict[str, Any]:
    tool = tool.as_sent
    item = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {key: getattr(tool.annotations, attribute) for attribute, key in HINTS.items()}
        | {"title": tool.annotations.title},
        META: tool.meta,
        ICONS: tool.icons or None,
        "execution": {"taskSupport": "required"} if tool.needs_task else None,
    }
    return {key: value for key, value in item.items() if value is not None}


def _encode(spec: UpstreamSpec, view: UpstreamView) -> bytes | None:
    """Return the content of the file; empty if it must not be saved, None if it cannot be written."""
    saved = msgspec.structs.asdict(_SavedView.of(view))
    try:
        # Not by msgspec, which refuses integers of more than 64 bits.
        data = json.dumps(saved, ensure_ascii=False).encode()
    except (ValueError, RecursionError, TypeError):
        return None  # half of a surrogate pair, or nested too deeply
    return b"" if len(data) > MAX_FILE_BYTES or quotes(saved, spec.secret_values) else data


def _view_of(spec: UpstreamSpec, saved: _SavedView) -> UpstreamView:
    """Return the view in a file. Raises `ValueError` if `save` cannot have written it."""
    tools, repairs = read_tools(saved.tools)
    if saved.format != FORMAT or saved.era is None or repairs:
        raise ValueError("another format")
    fields = {name: getattr(saved, name) for name in _VIEW_FIELDS}
    return UpstreamView(spec.name, "idle", description=spec.description, tools=tools, **fields)


def _read(path: Path, limit: int) -> tuple[bytes, float]:
    """Return the content and the time of a file. Raises `OSError`, and `ValueError` if it is too large."""
    with open_private(path) as file:
        about = os.fstat(file.fileno())
        if about.st_size > limit:
            raise ValueError("the file is too large")
        return file.read(limit), about.st_mtime


def _key_at(path: Path) -> bytes | None:
    with suppress(OSError, ValueError):
        key, _ = _read(path, _KEY_BYTES)
        if len(key) == _KEY_BYTES:
            return key
    return None


def _replace(path: Path, data: bytes) -> None:
    """Write a file in one step. Only the user can read it, as all files of `mkstemp`."""
    with _temporary(path.parent, data) as name:
        os.replace(name, path)


def _create(path: Path, data: bytes) -> None:
    """Create a file in one step. Raises `FileExistsError` if it exists already."""
    with _temporary(path.parent, data) as name:
        try:
            os.link(name, path)
        except FileExistsError:
            raise
        except OSError:
            os.replace(name, path)  # a file system without links


@contextmanager
def _temporary(folder: Path, data: bytes) -> Iterator[str]:
    handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        yield name
    finally:
        with suppress(OSError):
            os.unlink(name)
