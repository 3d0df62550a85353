"""Methods of strings, templates and code points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.grammar import integer, probes, quoted

if TYPE_CHECKING:
    from random import Random

POOLS = {
    "text": quoted(
        *("", "a", "Hello, World!", "  padded  ", "one,two,,three", "line 1\nline 2\r\nline 3", "naïve café", "日本語テキスト"),
        *("👩‍👩‍👧 family", "𝒳𝒴𝒵", "e\u0301", "\u00e9", "İstanbul", "ß straße", "ΑΣ ΣΑΣ", "a\tb\u00a0c\u2028d", "$1 $& $`", "0042"),
        *("snake_case_name", "camelCaseName", "kebab-case-name", "a.b.c", "\ufeffbom", "x" * 20, "ﬁn", "ǆ", "\ud83d", "%20%"),
    ),
    "short": quoted("", "a", ",", " ", "e", "o", "two", "\n", "👩", "é", "$", "A", "-", "_", "ll"),
    "n": integer(-3, 12),
    "form": quoted("NFC", "NFD", "NFKC", "NFKD"),
    "with": (
        *quoted("", "X", "[$&]", "$$", "$`", "$'", "$1", "$<x>"),
        "(m) => m.toUpperCase()",
        "(m, at) => m + at",
    ),
    "unary": (
        *("length", "toUpperCase()", "toLowerCase()", "trim()", "trimStart()", "trimEnd()", "normalize()", "isWellFormed()"),
        *("toWellFormed()", "at(-1)", "codePointAt(0)", "charCodeAt(0)", "valueOf()", "split('')", "split()"),
    ),
}

TEMPLATES = (
    "<<text>>.<<unary>>",
    "[...<<text>>]",
    "[...<<text>>].length",
    "<<text>>.slice(<<n>>, <<n>>)",
    "<<text>>.substring(<<n>>, <<n>>)",
    "<<text>>.substr(<<n>>, <<n>>)",
    "<<text>>.at(<<n>>)",
    "<<text>>[<<n>>]",
    "<<text>>.charAt(<<n>>)",
    "<<text>>.codePointAt(<<n>>)",
    "<<text>>.split(<<short>>)",
    "<<text>>.split(<<short>>, <<n>>)",
    "<<text>>.indexOf(<<short>>, <<n>>)",
    "<<text>>.lastIndexOf(<<short>>, <<n>>)",
    "<<text>>.lastIndexOf(<<short>>)",
    "<<text>>.includes(<<short>>, <<n>>)",
    "<<text>>.startsWith(<<short>>, <<n>>)",
    "<<text>>.endsWith(<<short>>, <<n>>)",
    "<<text>>.padStart(<<n>>, <<short>>)",
    "<<text>>.padEnd(25, <<short>>)",
    "<<text>>.repeat(<<n>>)",
    "<<text>>.concat(<<short>>, <<n>>, null, undefined)",
    "<<text>>.replace(<<short>>, <<with>>)",
    "<<text>>.replaceAll(<<short>>, <<with>>)",
    "<<text>>.normalize(<<form>>)",
    "<<text>>.normalize(<<form>>).length",
    "<<text>> < <<text>>",
    "[<<text>>, <<text>>, <<text>>, <<text>>].sort()",
    "String.raw`a\\n${<<text>>}\\u0041`",
    "`${<<text>>}-${<<n>>}-${[1, [2, 3]]}-${null}`",
    "String.fromCodePoint(<<text>>.codePointAt(0) ?? 65, 128512)",
    "String.fromCharCode(72, <<n>>, 65536 + 65)",
    "encodeURIComponent(<<text>>)",
    "encodeURI(<<text>>)",
    "decodeURIComponent(<<text>>)",
    "escape(<<text>>) + unescape('%u0107%E9')",
    "<<text>>.split(' ').map((w) => w.charAt(0).toUpperCase() + w.slice(1).toLowerCase()).join(' ')",
    "<<text>>.replace(/[-_](\\w)/g, (_, c) => c.toUpperCase())",
    "<<text>>.replace(/([a-z])([A-Z])/g, '$1_$2').toLowerCase()",
    "<<text>>.split(/\\r?\\n/).map((l) => l.trim()).filter(Boolean)",
    "[...<<text>>].reverse().join('')",
    "Object.entries([...<<text>>].reduce((a, c) => ({ ...a, [c]: (a[c] ?? 0) + 1 }), {}))",
    "<<text>>.anchor('\"') + <<text>>.bold()",
    "<<text>>.concat() === new String(<<text>>)",
    "new String(<<text>>)",
    "Object('ab')[1]",
    "[...<<text>>.matchAll(/\\p{L}+/gu)].map((m) => [m[0], m.index])",
    "<<text>>.search(/[A-Z\\d]/)",
    "JSON.stringify(<<text>>)",
    "String([<<text>>, <<n>>, [], {}])",
    "[String(Symbol('s')), String(null), String([null]), String(-0), String(1e21)]",
    "parseInt(<<text>>, 36)",
    "Number(<<text>>)",
)


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
