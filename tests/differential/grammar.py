"""Templates with placeholders, from which families make programs.

A placeholder is a name in double angle brackets, such as `<<text>>`. It is replaced by an entry of the pool with this
name, whose own placeholders are replaced too. A pool is a sequence of texts, or a function that returns one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

Pool: TypeAlias = Sequence[str] | Callable[["Random"], str]
Pools: TypeAlias = Mapping[str, Pool]

_PLACEHOLDER = re.compile(r"<<(\w+)>>")

SHOW = r"""
function show(v, seen = []) {
  if (v === undefined) return "undefined";
  if (typeof v === "number") return Object.is(v, -0) ? "-0" : String(v);
  if (typeof v === "bigint") return v + "n";
  if (typeof v === "string") return JSON.stringify(v);
  if (typeof v === "function") return "function " + v.name;
  if (typeof v !== "object" || v === null) return String(v);
  if (seen.includes(v)) return "circular";
  const inner = [...seen, v], kind = Object.prototype.toString.call(v).slice(8, -1);
  if (Array.isArray(v)) {
    const parts = [];
    for (let i = 0; i < v.length; i++) parts.push(i in v ? show(v[i], inner) : "hole");
    for (const key of Object.keys(v)) if (!/^\d+$/.test(key)) parts.push(show(key) + "=" + show(v[key], inner));
    return "[" + parts.join(", ") + "]";
  }
  if (v instanceof Error) return v.name + ": " + v.message + ("cause" in v ? " because " + show(v.cause, inner) : "")
    + (v.errors ? " of " + show(v.errors, inner) : "");
  if (v instanceof Date) return "Date " + (isNaN(v) ? "invalid" : v.toISOString());
  if (v instanceof RegExp) return show(String(v)) + " at " + v.lastIndex;
  if (v instanceof Map) return "Map" + show([...v], inner);
  if (v instanceof Set) return "Set" + show([...v], inner);
  if (ArrayBuffer.isView(v) && "length" in v) return kind + "(" + Array.from(v, (x) => show(x)).join(", ") + ")";
  const name = Object.getPrototypeOf(v) === null ? "null" : v.constructor?.name;
  return (name === "Object" ? "" : name + " ") + "{" + Reflect.ownKeys(v).map((key) => {
    const own = Object.getOwnPropertyDescriptor(v, key);
    const shown = "value" in own ? show(own.value, inner) : "accessor";
    return (typeof key === "symbol" ? String(key) : JSON.stringify(key)) + (own.enumerable ? ": " : "?: ") + shown;
  }).join(", ") + "}";
}
async function probe(f) {
  try { return show(await f()) } catch (e) { return "throws " + (e instanceof Error ? e.name : show(e)) }
}
"""
"""Functions at the end of programs: `show` tells apart what JSON does not, and `probe` does so for one expression."""


def fill(random: Random, template: str, pools: Pools) -> str:
    """Return a template with its placeholders replaced."""

    def entry(match: re.Match[str]) -> str:
        pool = pools[match[1]]
        return fill(random, pool(random) if callable(pool) else random.choice(pool), pools)

    return _PLACEHOLDER.sub(entry, template)


def probes(random: Random, templates: Sequence[str], pools: Pools, count: int = 8, setup: str = "") -> str:
    """Return a program that evaluates some expressions, each by itself."""
    chosen = [fill(random, random.choice(templates), pools) for _ in range(count)]
    lines = "".join(f"out.push(await probe(async () => ({each})));\n" for each in chosen)
    return f"{fill(random, setup, pools)}\nconst out = [];\n{lines}return out;\n{SHOW}"


def story(random: Random, templates: Sequence[str], pools: Pools) -> str:
    """Return a program made of one template, which returns a value by itself."""
    return f"{fill(random, random.choice(templates), pools)}\n{SHOW}"


def items(text: str) -> tuple[str, ...]:
    """Return the entries of a pool, each on a line or between two semicolons."""
    return tuple(item.strip() for item in re.split(r";;|\n", text) if item.strip())


def integer(low: int, high: int) -> Callable[[Random], str]:
    """Return a pool of integers."""
    return lambda random: str(random.randint(low, high))
