"""The common command lines of some commands, which are read without typer: importing it takes longer than the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def read_options(
    arguments: Sequence[str], options: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]] | None:
    """Return the words and the options of a command line. Return None for any other one, which typer has to read.

    Args:
        options: the names of the options with a value, by their spelling.
        flags: the names of the options without a value, by their spelling.
    """
    words: list[str] = []
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for each in rest:
        name = options.get(each) or flags.get(each)
        if name is None:
            if not each or each.startswith("-"):
                return None
            words.append(each)
        elif name in found:
            return None
        elif each in flags:
            found[name] = True
        else:
            value = next(rest, "")
            if not value or value.startswith("-"):
                return None
            found[name] = value
    return words, found


def spelled(names: Collection[str]) -> dict[str, str]:
    """Return the names of options by their usual spelling: `log_file` by `--log-file`."""
    return {"--" + name.replace("_", "-"): name for name in names}
