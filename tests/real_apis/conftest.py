"""A TypeScript compiler for the tests of this folder."""

from tests.declarations.conftest import compiler, type_check, typescript

__all__ = ["compiler", "type_check", "typescript"]
