"""The search for programs that need an image with `Intl`: those that the forms of the prelude do not serve."""

from __future__ import annotations

import pytest

from codemode_mcp.program.preflight import inspect, uses_intl

NEEDED = [
    "return new Intl.NumberFormat('de').format(1)",
    "const { NumberFormat } = Intl; return 1",
    "return Intl?.DateTimeFormat().resolvedOptions()",
    "return globalThis.Intl",
    'return globalThis["Intl"]',
    "return typeof Intl",
    "return { Intl }",
    "return n.toLocaleString('de-DE')",
    "return n.toLocaleString('en-US', { style: 'currency', currency: 'USD' })",
    "return n?.toLocaleString(undefined, { maximumFractionDigits: 2, style: 'percent' })",
    "return n.toLocaleString('en-US', options)",
    "return n.toLocaleString('en-US', { ...options })",
    "return n.toLocaleString(locale)",
    "return n.toLocaleString(...args)",
    "return d.toLocaleDateString('en-CA')",
    "return d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })",
    "return d.toLocaleDateString(undefined, { minimumFractionDigits: 2 })",
    "return a.sort((x, y) => x.localeCompare(y, undefined, { numeric: true }))",
    "return x.localeCompare(y, 'sv')",
    "return x.toLocaleUpperCase('tr')",
    "const f = n.toLocaleString; return f.call(1, 'de')",
    "return n['toLocaleString']('de')",
    "const { toLocaleString } = Number.prototype; return 1",
    "return `${d.toLocaleDateString('de')}`",
    "const f = (d: Date): string => d.toLocaleDateString('de'); return f(new Date())",
]

NOT_NEEDED = [
    "return 1",
    "return n.toLocaleString()",
    "return n.toLocaleString('en-US')",
    "return n.toLocaleString(undefined)",
    "return n.toLocaleString('en', undefined)",
    "return n.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: digits })",
    "return d.toLocaleString('en-US', { timeZone: 'America/New_York' })",
    "return d.toLocaleDateString() + d.toLocaleTimeString('en-US', { timeZone: zone })",
    "return a.sort((x, y) => x.localeCompare(y))",
    "return a.localeCompare(b, 'en-US') || a.localeCompare(b, undefined)",
    "return x.toLocaleUpperCase() + x.toLocaleLowerCase('en')",
    "// Intl is not here, nor is toLocaleString('de')\nreturn 1",
    "return 'about Intl and toLocaleString(1)'",
    "const f = (o: Intl.NumberFormatOptions) => o; return 1",
    "return { toLocaleString: 1, localeCompare() { return 1 } }",
    "return Internal.toLocaleStrings('de')",
]


@pytest.mark.parametrize("source", NEEDED)
def test_a_program_with_locales_or_options_needs_intl(source: str) -> None:
    assert uses_intl(source)
    assert inspect(source, "typescript").intl


@pytest.mark.parametrize("source", NOT_NEEDED)
def test_a_program_with_the_usual_forms_does_not_pay_for_intl(source: str) -> None:
    assert not uses_intl(source)
    assert not inspect(source, "typescript").intl
