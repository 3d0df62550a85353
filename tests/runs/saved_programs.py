"""Saved programs for tests of runs."""

from __future__ import annotations

from codemode_mcp.catalog.saved_programs.folder import Library
from codemode_mcp.catalog.saved_programs.program_file import read_program


def library(**texts: str) -> Library:
    """Return saved programs in JavaScript, by their names."""
    return Library(tuple(read_program(name, "javascript", text) for name, text in sorted(texts.items())))


DOUBLE = """/** Double a number.
 * @param {{ n: number }} input */
export default async function double({ n }) {
  if (n > 100) {
    throw new RangeError("too large");
  }
  return { twice: n * 2 };
}"""

WORK = """/** @param {{ n: number }} input */
export default async ({ n }) => {
  const result = unwrap(await MCP.files.read({ n }));
  return `${result.text}!`;
};"""
