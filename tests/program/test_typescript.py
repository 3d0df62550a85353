"""TypeScript cells through the real esbuild, and how it is found and fetched."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import ProgramError, RuntimeUnavailable
from codemode_mcp.program import esbuild as esbuild_module
from codemode_mcp.program import esbuild_pin
from codemode_mcp.program.esbuild import fetch_esbuild, find_esbuild
from codemode_mcp.program.typescript import Transformed, transform

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "cells" / "typescript.json"
CELLS: list[dict[str, Any]] = json.loads(CORPUS.read_text("utf-8")) if CORPUS.is_file() else []
"""Cells and what they give: `value`, or the line (and column) of a refusal (`reject`) or of an exception (`throw`)."""

RUN = """
const AsyncFunction = (async () => {}).constructor
const code = JSON.parse(require("fs").readFileSync(0, "utf8"))
const show = (result) => console.log(JSON.stringify(result))
const run = async () => await new AsyncFunction(code)()
run().then((value) => show({ value: value === undefined ? null : value }), (error) => {
  const frames = [...error.stack.matchAll(/<anonymous>:(\\d+):(\\d+)/g)]
  show({ error: String(error), frames: frames.map((frame) => [Number(frame[1]) - 2, Number(frame[2])]) })
})
"""

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="stands in a shell script for a program")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def esbuild() -> Path:
    try:
        return find_esbuild(None, environ=os.environ, cache_dir=Path("nowhere"))
    except RuntimeUnavailable as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def node() -> str:
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


def run(node: str, transformed: Transformed) -> dict[str, Any]:
    done = subprocess.run(
        [node, "-e", RUN], input=json.dumps(transformed.code), capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


async def refusal(esbuild: Path, source: str) -> str:
    with pytest.raises(ProgramError) as raised:
        await transform(esbuild, source, timeout=30)
    assert raised.value.code == "typescript_transform_failed"
    return raised.value.message


@pytest.mark.anyio
@pytest.mark.parametrize("cell", CELLS, ids=[cell["name"] for cell in CELLS])
async def test_every_cell_of_the_corpus_behaves(esbuild: Path, node: str, cell: dict[str, Any]) -> None:
    if cell["kind"] == "reject":
        position = (await refusal(esbuild, cell["code"])).split(": ")[0].split(":")
        assert position[:2] == ["cell.ts", str(cell["want"])]
        assert cell["col"] in (None, int(position[2]))
        return
    transformed = await transform(esbuild, cell["code"], timeout=30)
    result = run(node, transformed)
    if cell["kind"] == "value":
        assert "error" not in result
        assert cell["want"] in (None, result["value"])
    else:
        line, column = transformed.author_position(*result["frames"][0])
        assert line == cell["want"]
        assert cell["col"] in (None, column)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("", None),
        ("// nothing", None),
        ("1", None),
        ("return 1 as number // end", 1),
        ("const x: number = await Promise.resolve(2)\r\nreturn x", 2),
        ('"use strict"; enum E { A = 7 } return E.A', 7),
        ("<!-- old\nreturn 3 as any", 3),
        ("return `\\u0000\n${1 as number}`", "\0\n1"),
        ("return '\ud800'", "\ufffd"),
        ("return typeof MCP === 'undefined' && this !== null", True),
        ("class A { accessor x = 1; #y = 2; get y() { return this.#y } } const a = new A(); return a.x + a.y", 3),
        ("namespace N { export const a: number = 4 } return N.a", 4),
        ("module N { export const a = 4 } return N.a", 4),
        ("namespace A.B { export const c = 5 } const d = await A.B.c; text = d; var text; return text", 5),
        # A function in a block can be used outside of it, and keeps its name.
        ("if (true) { function inner(): void {} } return typeof inner", "function"),
        ("if (false) { function inner() {} } return typeof inner", "undefined"),
        ("const n: number = 1;\nif (n) {\n  function inner() {}\n}\nreturn inner.name", "inner"),
        ("{ function f(a?: number) { return a } } return [f(2), f.name]", [2, "f"]),
        ("switch (1) { case 1: function one() { return 1 } } return one()", 1),
        ("try { function risky() { return 2 } } catch {} return risky()", 2),
        ("if (true) function single() { return 3 }\nreturn single()", 3),
        ("for (const i of [1, 2]) { function each() { return i } } return each()", 2),
        ("let x = 1; { function user() { return x++ } user() } return [x, user.name]", [2, "user"]),
        ("return top(); function top(): string { { function deep() { return 'd' } } return deep() }", "d"),
        ("'use strict'; { function f() {} } return typeof f", "undefined"),
        ("namespace N { export const a = 1 } { function f() { return N.a } } return f()", 1),
    ],
)
async def test_a_program_returns_its_value(esbuild: Path, node: str, source: str, value: object) -> None:
    assert run(node, await transform(esbuild, source, timeout=30)) == {"value": value}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rest", "value"),
    [
        ("return N.a", 1),
        ("return", None),
        ("return;", None),
        ("return /* x */; return 2", None),
        ("return /* x */ N.a as number", 1),
        ("return // x\n2", None),
        ("return /*\n*/ 2", None),
        ("if (N.a) { return } return 2", None),
        ("return ( // why\n N.a)", 1),
        ("return 1, 2, N.a", 1),
        ("return (async () => { return 'inner' })()", "inner"),
        ("return { a: N.a }", {"a": 1}),
        ("const é = '😀'; if (!N.a) return 1; return '😀' + é", "😀😀"),
        ("try { return N.a } catch { return 2 } finally { text = 1 } var text", 1),
        ("for await (const x of [5]) return x", 5),
        ("const f = () => { return 2 }; return f()", 2),
    ],
)
async def test_a_namespace_allows_return_beside_await(esbuild: Path, node: str, rest: str, value: object) -> None:
    source = f"namespace N {{ export const a = 1 }}\nawait 0;\n{rest}"
    assert run(node, await transform(esbuild, source, timeout=30)) == {"value": value}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("const a: number = 1;\nconst b: = 2;", 'cell.ts:2:10: Unexpected "="\n  const b: = 2;'),
        ('const ä = "日😀";\n"😀" + ; // x', 'cell.ts:2:8: Unexpected ";"\n  "😀" + ; // x'),
        ("a\r\nb\u2028let c: c c", 'cell.ts:3:10: Expected ";" but found "c"\n  let c: c c'),
        ("const x =", "cell.ts:1:10: Unexpected end of file\n  const x ="),
        ("f(", "cell.ts:1:3: Unexpected end of file\n  f("),
        ("return 1 } evil(); {", 'cell.ts:1:10: Unexpected "}"\n  return 1 } evil(); {'),
        ("}})(); (async () => {{", 'cell.ts:1:1: Unexpected "}"\n  }})(); (async () => {{'),
        ("break __L", 'cell.ts:1:7: There is no containing label named "__L"\n  break __L'),
        ("namespace N {\n  const a: = 1\n}", 'cell.ts:2:12: Unexpected "="\n  const a: = 1'),
        (
            "namespace N { export const a = 1 }\nif (N) return 1; const y = await 0; const y = 2",
            'cell.ts:2:43: The symbol "y" has already been declared\n  if (N) return 1; const y = await 0; const y = 2',
        ),
    ],
)
async def test_diagnostics_have_the_authors_position_and_line(esbuild: Path, source: str, message: str) -> None:
    assert await refusal(esbuild, source) == message


@pytest.mark.anyio
async def test_five_diagnostics_are_told_at_most(esbuild: Path) -> None:
    told = await refusal(esbuild, "let a: number;\n" * 1_000)
    assert [line for line in told.splitlines() if line.startswith("cell.ts")] == [
        f'cell.ts:{n}:5: The symbol "a" has already been declared' for n in range(2, 7)
    ]


@pytest.mark.anyio
async def test_a_long_line_is_cut_around_the_mistake(esbuild: Path) -> None:
    told = await refusal(esbuild, f"{'a;' * 50_000} let b: = 1; {'c;' * 50_000}")
    assert len(told) < 400
    assert "let b: = 1;" in told


@pytest.mark.anyio
async def test_too_many_returns_beside_a_namespace_and_await_have_their_own_message(esbuild: Path) -> None:
    told = await refusal(esbuild, "namespace N { export const a = 1 }\nawait 0;\n" + "if (N.a) return 1;\n" * 300)
    assert told.startswith("A namespace together with top-level `await`")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "frames"),
    [
        ("type A = 1\n\nthrow new Error('x')", [(3, 7)]),
        ("interface A {}\nconst f = (a: A): never => { throw new Error() }\n\nf({})", [(2, 36), (4, 1)]),
        ("namespace N { export const a = 1 }\nif (!N.a) return; null!.x; await 0", [(2, 25)]),
        ("enum E { A }\nclass A { @d m() {} }\nfunction d(): void { throw new Error('x') }", [(3, 28), (2, 14)]),
    ],
)
async def test_stack_frames_lead_to_the_authors_lines(
    esbuild: Path, node: str, source: str, frames: list[tuple[int, int]]
) -> None:
    transformed = await transform(esbuild, source, timeout=30)
    found = [transformed.author_position(*frame) for frame in run(node, transformed)["frames"]]
    own = [position for position in found if position[0] > 0]
    assert own[0] == frames[0]
    assert [line for line, _ in own] == [line for line, _ in frames]


@pytest.mark.anyio
async def test_frames_of_the_wrapper_and_of_helpers_are_nobodys(esbuild: Path) -> None:
    transformed = await transform(esbuild, "class A { @d m() {} }\nreturn 1", timeout=30)
    assert transformed.author_position(1, 1)[0] == 0
    assert transformed.author_position(10_000, 1)[0] == 0


@pytest.mark.anyio
async def test_a_slow_transform_is_a_timeout_and_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[anyio.abc.Process] = []
    open_process = anyio.open_process

    async def recorded(*arguments: Any, **options: Any) -> anyio.abc.Process:
        opened.append(await open_process(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(anyio, "open_process", recorded)
    slow = script(tmp_path / "esbuild", "exec sleep 60")
    with pytest.raises(ProgramError, match=r"could not be transformed within 0\.3 s") as raised:
        await transform(slow, "1", timeout=0.3)
    assert raised.value.code == "timeout"
    assert all(each.returncode is not None for each in opened)


@pytest.mark.anyio
@posix_only
@pytest.mark.parametrize(
    "body",
    ["echo '✘ [ERROR] Invalid build flag: \"--x\"' >&2; exit 1", "cat > /dev/null; echo 'return 1'"],
    ids=["other flags", "no source map"],
)
async def test_a_binary_that_does_not_do_what_is_needed_is_unavailable(tmp_path: Path, body: str) -> None:
    with pytest.raises(RuntimeUnavailable, match="codemode-mcp setup"):
        await transform(script(tmp_path / "esbuild", body), "1", timeout=30)


@pytest.mark.anyio
@posix_only
@pytest.mark.parametrize("written", ["null", "[]", '{"mappings": 5}', '{"mappings": "AAAA;é"}'])
async def test_a_source_map_of_another_form_is_refused(tmp_path: Path, written: str) -> None:
    encoded = base64.b64encode(written.encode()).decode()
    comment = f"//# sourceMappingURL=data:application/json;base64,{encoded}"
    with pytest.raises(RuntimeUnavailable, match="source map"):
        await transform(script(tmp_path / "esbuild", f"cat > /dev/null; echo '1'; echo '{comment}'"), "1", timeout=30)


@pytest.mark.anyio
@posix_only
async def test_a_source_map_that_breaks_off_gives_the_places_before(tmp_path: Path) -> None:
    encoded = base64.b64encode(b'{"mappings": "AAAA;AACA;g"}').decode()
    comment = f"//# sourceMappingURL=data:application/json;base64,{encoded}"
    broken = script(tmp_path / "esbuild", f"cat > /dev/null; echo '1'; echo '{comment}'")
    transformed = await transform(broken, "1\n2", timeout=30)
    assert transformed.author_position(2, 1) == (1, 1)


@pytest.mark.anyio
@posix_only
async def test_a_crash_of_esbuild_is_told_as_a_failed_transform(tmp_path: Path) -> None:
    crashing = script(tmp_path / "esbuild", "echo 'fatal error: stack overflow' >&2; exit 2")
    assert "fatal error: stack overflow" in await refusal(crashing, "1")


@pytest.mark.anyio
async def test_a_binary_that_cannot_run_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="cannot run"):
        await transform(tmp_path / "missing", "1", timeout=30)


# --- Finding


def script(path: Path, body: str) -> Path:
    if sys.platform == "win32":
        pytest.skip("stands in a shell script for a program")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_esbuild(path: Path, version: str = esbuild_pin.VERSION) -> Path:
    return script(path, f"echo {version}")


@pytest.fixture
def nothing_bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(esbuild_module, "_BUNDLED", tmp_path / "bundled" / "esbuild")
    return tmp_path / "bundled" / "esbuild"


def cached_esbuild(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in into a cache folder, and its digest into the place of the pinned one."""
    path = fake_esbuild(folder / f"esbuild-{esbuild_pin.VERSION}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(esbuild_pin, "platform_key", lambda: "linux-x64")
    monkeypatch.setitem(esbuild_pin.EXECUTABLE_SHA256, "linux-x64", digest)
    return path


def refused_in_the_cache(folder: Path) -> str:
    with pytest.raises(RuntimeUnavailable) as raised:
        find_esbuild(None, environ={"PATH": ""}, cache_dir=folder)
    assert "codemode-mcp setup" in raised.value.message
    return raised.value.message


@pytest.mark.usefixtures("nothing_bundled")
def test_a_cached_binary_is_executed_only_while_it_is_the_pinned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cached_esbuild(tmp_path / "cache", monkeypatch)
    assert find_esbuild(None, environ={"PATH": ""}, cache_dir=path.parent) == path
    path.write_text(path.read_text() + "echo more\n")
    assert f"not esbuild {esbuild_pin.VERSION} as pinned" in refused_in_the_cache(path.parent)


@pytest.mark.usefixtures("nothing_bundled")
@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_a_cached_binary_that_others_can_write_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = cached_esbuild(tmp_path / "above" / "cache", monkeypatch)
    open_to_all = {"file": path, "folder": path.parent, "above": path.parent.parent}[place]
    open_to_all.chmod(0o777)
    assert f"{open_to_all} can be written by others" in refused_in_the_cache(path.parent)


@pytest.mark.usefixtures("nothing_bundled")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_cached_binary_of_another_user_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cached_esbuild(tmp_path / "cache", monkeypatch)
    os.chown(path, 12345, 12345)
    assert f"{path} belongs to another user" in refused_in_the_cache(path.parent)


def test_the_order_is_configured_bundled_path_cache(
    nothing_bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = cached_esbuild(tmp_path / "cache", monkeypatch)
    environ = {"PATH": str(tmp_path / "bin")}

    def found(configured: str | None = None) -> Path:
        return find_esbuild(configured, environ=environ, cache_dir=tmp_path / "cache")

    assert found() == cached
    on_path = fake_esbuild(tmp_path / "bin" / "esbuild")
    assert found() == on_path
    fake_esbuild(nothing_bundled)
    assert found() == nothing_bundled
    configured = fake_esbuild(tmp_path / "own", "0.19.1")
    assert found(str(configured)) == configured


@pytest.mark.usefixtures("nothing_bundled")
def test_a_path_binary_of_another_family_is_passed_over_and_named(tmp_path: Path) -> None:
    fake_esbuild(tmp_path / "bin" / "esbuild", "0.14.0")
    with pytest.raises(RuntimeUnavailable, match=r"is 0\.14\.0, not 0\.28\.x") as raised:
        find_esbuild(None, environ={"PATH": str(tmp_path / "bin")}, cache_dir=tmp_path)
    assert "codemode-mcp setup" in raised.value.message


def test_a_configured_binary_that_does_not_run_is_an_error_not_a_hint(tmp_path: Path) -> None:
    broken = tmp_path / "esbuild"
    broken.write_text("not a program")
    for path in (broken, tmp_path / "missing"):
        with pytest.raises(RuntimeUnavailable, match="configured esbuild"):
            find_esbuild(str(path), environ=os.environ, cache_dir=tmp_path)


# --- Fetching


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an npm that packs this archive, whose hash is the pinned one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {"package/bin/esbuild": b"#!/bin/sh\n", "package/../evil": b"x"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    archive = tmp_path / "esbuild.tgz"
    archive.write_bytes(buffer.getvalue())
    # `npm pack PACKAGE --pack-destination DIRECTORY`
    npm = script(tmp_path / "bin" / "npm", f'cp {archive} "$4"')
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(esbuild_pin, "platform_key", lambda: "linux-x64")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    monkeypatch.setitem(esbuild_pin.INTEGRITY, "linux-x64", digest)
    return archive


@pytest.mark.usefixtures("package")
def test_the_binary_alone_is_put_into_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = fetch_esbuild(cache, registry=None)
    assert list(cache.iterdir()) == [path]
    assert path.read_bytes() == b"#!/bin/sh\n"
    assert path.stat().st_mode & 0o777 == 0o755
    assert not list(tmp_path.rglob("evil"))


def test_an_archive_that_is_not_the_pinned_one_is_refused(package: Path, tmp_path: Path) -> None:
    package.write_bytes(package.read_bytes() + b"\0")
    with pytest.raises(RuntimeUnavailable, match="not the pinned content"):
        fetch_esbuild(tmp_path / "cache", registry=None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("package")
def test_npms_own_error_is_passed_on(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "npm", "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(RuntimeUnavailable, match=r"npm error code ENOTFOUND\)\. Is this machine offline\?"):
        fetch_esbuild(tmp_path / "cache", registry="https://registry.invalid")


def test_without_npm_the_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(esbuild_pin, "platform_key", lambda: "linux-x64")
    with pytest.raises(RuntimeUnavailable, match=r"npm is not installed.*TypeScript only"):
        fetch_esbuild(tmp_path / "cache", registry=None)


@pytest.mark.usefixtures("package")
def test_an_npm_of_the_current_folder_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path / "project" / "npm", f"touch {tmp_path}/planted; exit 1")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    assert fetch_esbuild(tmp_path / "cache", registry=None).exists()
    assert not (tmp_path / "planted").exists()


def test_a_platform_without_a_package_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(esbuild_pin, "platform_key", lambda: None)
    with pytest.raises(RuntimeUnavailable, match="no esbuild package for"):
        fetch_esbuild(tmp_path, registry=None)


def test_the_pins_are_loadable_without_our_dependencies() -> None:
    """The build hook runs where nothing is installed."""
    root = str(Path(esbuild_pin.__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "from codemode_mcp.program import esbuild_pin\nprint(esbuild_pin.VERSION)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == esbuild_pin.VERSION
