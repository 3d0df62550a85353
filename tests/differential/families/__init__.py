"""Families of programs: each module has `program(random)`, the body of an async function that returns a value."""
