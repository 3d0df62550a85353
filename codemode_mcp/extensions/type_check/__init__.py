"""Finds type errors in programs with TypeScript's native compiler and the declarations of a catalog."""
