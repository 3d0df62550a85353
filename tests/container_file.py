"""The instructions of the container file, for the tests of the image and of the files that start it."""

from __future__ import annotations

from pathlib import Path

CONTAINERFILE = Path(__file__).parents[1] / "Containerfile"
WITH_TELEMETRY = CONTAINERFILE.parent / "examples" / "deployment" / "Containerfile.telemetry"


def instructions(path: Path = CONTAINERFILE) -> list[tuple[str, str]]:
    """Return each instruction and its arguments, in one line."""
    text = "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("#"))
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines]


def given(name: str, path: Path = CONTAINERFILE) -> list[str]:
    """Return the arguments of each instruction with this name."""
    return [arguments for instruction, arguments in instructions(path) if instruction == name]


def environment() -> dict[str, str]:
    """Return the variables of the image."""
    return dict(each.split("=", 1) for each in given("ENV")[-1].split())
