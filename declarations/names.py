"""Server and tool names as JavaScript identifiers. Pure: no I/O.

A name is split at all characters other than letters and digits, and written in camel case: `create_issue` becomes
`createIssue`, `chrome-devtools` becomes `chromeDevtools`. Acronyms keep their case (`API_KEY_get` is `APIKEYGet`), and
one leading `_` or `$` is kept. An identifier that is reserved gets a trailing `_`.

If several names have one identifier, the name that has it already keeps it. Of names that are all new, the name that
equals the identifier gets it, or else the first name in sorted order. The others get `_2`, `_3`, ... The result depends
on the set of names, not on their order. So a new name never changes the meaning of an identifier, if the caller
remembers which names have which.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from typing import Final, Literal

from declarations.untrusted_text import HIDDEN

Kind = Literal["tool", "server"]

MAX_LENGTH: Final = 64

NOTHING_KEPT: Final[Mapping[str, str]] = {}


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


OBJECT_PROTOTYPE: Final = word_set("""
    __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__ constructor hasOwnProperty
    isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf
""")
"""Members of `Object.prototype`, which every object has."""

RESERVED_WORDS: Final = word_set("""
    arguments await break case catch class const continue debugger default delete do else enum eval export extends false
    finally for function if implements import in instanceof interface let new null package private protected public
    return static super switch this throw true try typeof undefined var void while with yield
""")
"""Words that cannot be names of functions or namespaces in strict JavaScript or in declaration files."""

SPECIAL_MEMBERS: Final = frozenset({"$api", "prototype", "then", "toJSON"})
"""Names with a special meaning on `MCP` and every server.

`then` would make the object a thenable, and `JSON.stringify` would call `toJSON`. `$api` returns declarations."""

TOOL_RESERVED: Final = RESERVED_WORDS | OBJECT_PROTOTYPE | SPECIAL_MEMBERS | {"prompts", "resources"}

HOST_GLOBALS: Final = word_set("""
    ALL_TOOLS API MCP args console image json load namespaces programs save_program show store text tools unwrap
    yield_control
    TextDecoder TextEncoder URL URLSearchParams atob btoa clearInterval clearTimeout crypto performance queueMicrotask
    setInterval setTimeout structuredClone
""")
"""Global names that this product adds to programs. Some of them are known from browsers. `guest.d.ts` declares them."""

LANGUAGE_GLOBALS: Final = word_set("""
    AggregateError Array ArrayBuffer AsyncDisposableStack AsyncIterator Atomics BigInt BigInt64Array BigUint64Array
    Boolean DOMException DataView Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array
    Float64Array Function Infinity Int16Array Int32Array Int8Array InternalError Intl Iterator JSON Map Math NaN Number
    Object Promise Proxy RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol
    SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet
    WebAssembly decodeURI decodeURIComponent encodeURI encodeURIComponent escape globalThis isFinite isNaN parseFloat
    parseInt unescape
""")
"""Global names of JavaScript and its engines."""

FILE_NAMES: Final = frozenset({"index", "INDEX"})
"""Names of the file `mcp/index.d.ts`, which describes all servers. Some file systems ignore case."""

SERVER_RESERVED: Final = (
    RESERVED_WORDS | OBJECT_PROTOTYPE | SPECIAL_MEMBERS | HOST_GLOBALS | LANGUAGE_GLOBALS | FILE_NAMES
)

_ALIAS_RESERVED: Final = OBJECT_PROTOTYPE | SPECIAL_MEMBERS | {"", "prompts", "resources"}

_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")

_NUMBERED: Final = re.compile(r"_[0-9]+\Z")
"""The end of an identifier that collided with another one."""


def identifiers(
    names: Iterable[str],
    *,
    kind: Kind = "tool",
    reserved: frozenset[str] = frozenset(),
    kept: Mapping[str, str] = NOTHING_KEPT,
    in_order: bool = False,
) -> dict[str, str]:
    """Return the identifier of each original name. It is unique among `names`, and has at most 64 characters.

    Args:
        names: original names; repeated ones count once.
        kind: selects the reserved names: members of a server, or members of `MCP` and global names.
        reserved: further reserved names.
        kept: the identifiers that names have already. Those of other names than `names` are not given away.
        in_order: True to give an identifier to the earliest of its new names, instead of the rule of this module.
    """
    avoided = (TOOL_RESERVED if kind == "tool" else SERVER_RESERVED) | reserved
    holders: dict[str, str] = {}
    for name, identifier in kept.items():
        if identifier not in avoided:
            holders.setdefault(identifier, name)
    originals = list(dict.fromkeys(names)) if in_order else sorted(set(names))
    groups: dict[str, list[str]] = {}
    result: dict[str, str] = {}
    for name in originals:
        known = kept.get(name)
        if known is not None and holders.get(known) == name:
            result[name] = known
        else:
            groups.setdefault(_identifier(name, kind, avoided), []).append(name)

    # An original name never becomes the suffixed identifier of another tool. Otherwise `MCP.server["foo_2"]`, as in the
    # upstream's documentation, would call the wrong tool.
    taken = {*originals, *groups, *avoided, *holders}
    for identifier, group in groups.items():
        winner = None
        if identifier not in holders:
            winner = identifier if identifier in group and not in_order else group[0]
            result[winner] = identifier
        number = 2
        for name in group:
            if name == winner:
                continue
            while (candidate := _suffixed(identifier, number)) in taken:
                number += 1
            taken.add(candidate)
            result[name] = candidate
    return result


def is_displaced(name: str, identifier: str, kind: Kind = "tool") -> bool:
    """Return True if a name has another identifier than it would have alone, because another one has that."""
    return _NUMBERED.search(identifier) is not None and identifiers([name], kind=kind)[name] != identifier


def aliases(
    names: Iterable[str], identifiers: Mapping[str, str], reserved: Container[str] = frozenset()
) -> dict[str, str]:
    """Return the identifiers of original names that also work in brackets, as in `MCP.github["create_issue"]`.

    A name is left out if it is the identifier of any tool, or has another meaning on every object (`then`,
    `constructor`, `$api`, ...). It is also left out if it was the identifier of another tool when its own was made: a
    program that has used that tool must not call this one once the other is gone.

    Args:
        reserved: further identifiers, such as those of servers that are disabled.
    """
    taken = {*identifiers.values(), *_ALIAS_RESERVED}
    return {
        name: identifiers[name]
        for name in sorted(set(names))
        if name in identifiers
        and name not in taken
        and name not in reserved
        and not is_of_another(name, identifiers[name])
    }


def is_of_another(name: str, identifier: str) -> bool:
    """Return True if a name was the identifier of another one when its own identifier was made."""
    return identifier != name and _NUMBERED.sub("", identifier) == name


def _identifier(name: str, kind: Kind, avoided: frozenset[str]) -> str:
    words = _words(name)
    if not words:
        return f"{kind}_"
    first = words[0]
    if not (first[0].isupper() and first[1:2].isupper()):
        first = first[0].lower() + first[1:]
    identifier = first + "".join(_capitalised(word) for word in words[1:])
    # One leading `_` or `$` is kept, because it has a meaning in JavaScript.
    if name[0] in "_$" and _is_word(name[1:2]):
        identifier = name[0] + identifier
    if not identifier.isidentifier() and not identifier.startswith("$"):
        identifier = "_" + identifier
    identifier = identifier[:MAX_LENGTH]
    # `__proto__` has lost its underscores here. The trailing one shows that the name is special.
    if identifier in avoided or name in OBJECT_PROTOTYPE:
        return f"{identifier[: MAX_LENGTH - 1]}_"
    return identifier


def _words(name: str) -> list[str]:
    if name.isascii():
        return _ASCII_WORD.findall(name)
    # Names that look the same get one spelling, the composed form.
    composed = unicodedata.normalize("NFC", name)
    return "".join(character if _is_word(character) else " " for character in composed).split()


def _is_word(character: str) -> bool:
    if character.isascii():
        return character.isalnum()
    if HIDDEN.match(character):
        return False
    return unicodedata.category(character)[0] in "LMN" and f"a{character}".isidentifier()


def _capitalised(word: str) -> str:
    upper = word[0].upper()
    # A letter whose upper case has two characters, such as `ß`, is not changed.
    return (upper if len(upper) == 1 else word[0]) + word[1:]


def _suffixed(identifier: str, number: int) -> str:
    suffix = f"_{number}"
    return identifier[: MAX_LENGTH - len(suffix)] + suffix
