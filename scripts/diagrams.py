"""Draws the pictures of `docs/how-it-works.md`: `.venv/bin/python scripts/diagrams.py`.

They bring their own dark ground, so that they read the same on a light page and on a dark one.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.runs.state import CALL_TRANSITIONS, TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"

GROUND: Final = "#1d2230"
TEXT: Final = "#e8ebf2"
QUIET: Final = "#a3adc2"
BLUE, GREEN, ORANGE, RED, GREY = "#2f5fb3", "#2c7a58", "#9a5b16", "#9c3541", "#3a4358"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


class Drawing:
    """An SVG as it grows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="{FONT}" font-size="15" fill="{TEXT}">',
            f"<title>{escape(title)}</title>",
            f'<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{QUIET}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="12" fill="{GROUND}"/>',
        ]

    def box(
        self, x: int, y: int, width: int, height: int, colour: str, title: str, *lines: str, mono: bool = False
    ) -> None:
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{colour}"/>')
        top = y + height / 2 - 10 * len(lines) + 5
        self.text(x + width / 2, top, title, weight=600)
        for number, line in enumerate(lines, 1):
            self.text(x + width / 2, top + 20 * number, line, size=13, mono=mono)

    def frame(self, x: int, y: int, width: int, height: int, title: str, *, wall: bool = False) -> None:
        dash = 'stroke-dasharray="9 5" stroke-width="2.5"' if wall else 'stroke-width="1.5"'
        colour = "#e0a458" if wall else "#65708a"
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="none" stroke="{colour}" {dash}/>'
        )
        self.text(x + 14, y + 22, title, anchor="start", colour="#e0a458" if wall else QUIET, size=13, weight=600)

    def arrow(self, *points: tuple[float, float], both: bool = False, dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        start = ' marker-start="url(#tip)"' if both else ""
        dash = ' stroke-dasharray="5 5"' if dashed else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{QUIET}" stroke-width="1.8"{dash}{start} marker-end="url(#tip)"/>'
        )

    def bar(self, x: int, y: int, width: int, height: int, colour: str, title: str) -> None:
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{colour}"/>')
        self.text(x + width / 2, y + height / 2 + 5, title, size=13)

    def line(self, x1: int, y1: int, x2: int, y2: int) -> None:
        self.parts.append(f'<path d="M{x1} {y1} L{x2} {y2}" stroke="#4a546b" stroke-width="1"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        colour: str = TEXT,
        size: int = 15,
        weight: int = 400,
        mono: bool = False,
    ) -> None:
        family = f' font-family="{MONO}"' if mono else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" font-size="{size}" '
            f'font-weight="{weight}"{family}>{escape(text)}</text>'
        )

    def done(self) -> str:
        return "\n".join((*self.parts, "</svg>\n"))


def overview() -> str:
    """Client, two tools, runs, the wall around the sandbox, the one road to the tools."""
    d = Drawing(980, 470, "A client calls exec and wait; the program's calls go by one road to all servers")
    d.box(20, 150, 150, 90, BLUE, "MCP client", "Claude, Cursor,", "VS Code, yours")
    d.text(212, 180, "exec", mono=True, size=14)
    d.text(212, 226, "wait", mono=True, size=14)
    d.arrow((176, 195), (248, 195), both=True)
    d.frame(254, 20, 480, 430, "codemode-mcp")
    d.box(276, 60, 436, 62, GREY, "Runs", "start · suspend to a snapshot · resume · end")
    d.arrow((494, 124), (494, 152), both=True)
    d.frame(276, 158, 436, 110, "sandbox: no network, no files, no processes", wall=True)
    d.box(296, 190, 396, 62, GREEN, "Your program", 'await MCP.tracker.createIssue({ title: "…" })', mono=True)
    d.arrow((494, 270), (494, 298), both=True)
    d.text(508, 289, "calls out, results in: as data", anchor="start", size=13, colour=QUIET)
    d.box(
        276,
        304,
        436,
        126,
        GREY,
        "Dispatch: the only road",
        "policy → arguments → hooks → approval",
        "→ send → middleware → record",
        "the same for every call of every program",
    )
    for y, title, line in (
        (40, "Local servers", "started at their first call"),
        (140, "Remote servers", "HTTP, with your login"),
        (240, "Plugins", "your tools in Python"),
        (340, "The client", "ask the user, its model"),
    ):
        d.box(790, y, 172, 76, ORANGE, title, line)
        d.arrow((714, 366), (752, 366), (752, y + 38), (784, y + 38))
    return d.done()


STATES: Mapping[str, tuple[int, int, str, str]] = {
    "running": (70, 120, GREEN, "computes, or waits for calls"),
    "waiting": (400, 120, BLUE, "a snapshot of some kilobytes"),
    "completed": (70, 310, GREY, "has a value"),
    "failed": (290, 310, RED, "has an error and a code"),
    "aborted": (510, 310, GREY, "cancelled, or shut down"),
    "expired": (730, 310, GREY, "waited too long"),
}
"""Places of the states: the left upper corner, the colour, what to say."""

EVENTS: Mapping[tuple[str, str], tuple[tuple[tuple[float, float], ...], tuple[float, float]]] = {
    ("running", "suspend"): (((272, 145), (394, 145)), (333, 136)),
    ("waiting", "resume"): (((398, 175), (276, 175)), (333, 195)),
    ("running", "complete"): (((130, 192), (130, 304)), (126, 250)),
    ("running", "fail"): (((190, 192), (190, 225), (340, 270), (340, 304)), (232, 258)),
    ("running", "abort"): (((240, 192), (240, 212), (560, 262), (560, 304)), (342, 220)),
    ("waiting", "fail"): (((450, 192), (450, 232), (400, 270), (400, 304)), (424, 286)),
    ("waiting", "abort"): (((520, 192), (520, 214), (620, 262), (620, 304)), (642, 286)),
    ("waiting", "expire"): (((602, 155), (820, 155), (820, 304)), (852, 235)),
}
"""Points of each transition's line, and the position of its name."""


def states() -> str:
    """Return the states of a run, and what leads from one to another."""
    drawn = {(state, event) for state, events in TRANSITIONS.items() for event in events}
    assert drawn == set(EVENTS), f"runs/state has other transitions: {drawn ^ set(EVENTS)}"
    d = Drawing(980, 420, "The states of a run")
    d.text(170, 60, "exec", mono=True)
    d.arrow((170, 70), (170, 114))
    for name, (x, y, colour, line) in STATES.items():
        d.box(x, y, 200, 70, colour, name, line)
    for (_, event), (way, (x, y)) in EVENTS.items():
        d.arrow(*way)
        d.text(x, y, event, colour=QUIET, size=13, anchor="end" if event == "complete" else "middle")
    d.text(640, 60, "suspended at its deadline, at yield_control(),", size=13, colour=QUIET)
    d.text(640, 80, "or when a person has to answer; wait resumes it", size=13, colour=QUIET)
    return d.done()


CALL_STATES: Mapping[str, tuple[int, int, str, str]] = {
    "queued": (30, 110, GREY, "nothing is decided"),
    "awaiting_approval": (30, 260, ORANGE, "a person is asked"),
    "ready": (270, 110, GREEN, "it may be sent"),
    "recorded": (270, 260, BLUE, "the store has it"),
    "sending": (510, 260, BLUE, "the store is told"),
    "dispatched": (510, 110, GREEN, "the tool may have it"),
    "settled": (770, 110, GREY, "has its end"),
    "abandoned": (770, 260, GREY, "was given up"),
}
CALL_EVENTS: Mapping[tuple[str, str], tuple[tuple[tuple[float, float], ...], tuple[float, float]]] = {
    ("queued", "ask"): (((110, 182), (110, 254)), (84, 222)),
    ("queued", "admit"): (((212, 145), (264, 145)), (238, 134)),
    ("awaiting_approval", "approve"): (((212, 285), (240, 285), (240, 165), (264, 165)), (252, 318)),
    ("ready", "record"): (((360, 182), (360, 254)), (326, 222)),
    ("ready", "send"): (((452, 145), (504, 145)), (478, 134)),
    ("recorded", "claim"): (((452, 280), (504, 280)), (478, 270)),
    ("sending", "retract"): (((508, 310), (456, 310)), (482, 330)),
    ("recorded", "send"): (((430, 258), (430, 220), (530, 220), (530, 188)), (466, 212)),
    ("sending", "send"): (((600, 258), (600, 188)), (626, 226)),
    ("dispatched", "send"): (((570, 108), (570, 80), (640, 80), (640, 104)), (605, 72)),
}
"""Drawn as those of a run. Every state but the last two can also settle or be abandoned; that is one line each."""


def calls() -> str:
    """Return the states of a nested call, and what leads from one to another."""
    open_states = [state for state, events in CALL_TRANSITIONS.items() if events]
    ends = {(state, event) for state in open_states for event in ("settle", "abandon")}
    drawn = {(state, event) for state, events in CALL_TRANSITIONS.items() for event in events}
    assert drawn == {*CALL_EVENTS, *ends}, f"runs/state has other transitions: {drawn ^ {*CALL_EVENTS, *ends}}"
    d = Drawing(980, 400, "The states of a nested call")
    for name, (x, y, colour, line) in CALL_STATES.items():
        d.box(x, y, 180, 70, colour, name.replace("_", " "), line)
    for (_, event), (way, (x, y)) in CALL_EVENTS.items():
        d.arrow(*way)
        d.text(x, y, event, colour=QUIET, size=13)
    d.arrow((692, 145), (764, 145))
    d.text(728, 134, "settle", colour=QUIET, size=13)
    d.arrow((692, 295), (764, 295), dashed=True)
    d.text(728, 284, "abandon", colour=QUIET, size=13)
    d.text(
        490, 374, "every state on the left can settle (an answer, or a refusal) and be abandoned", size=13, colour=QUIET
    )
    return d.done()


def timeline() -> str:
    """Draw the times of a program that is suspended and resumed."""
    d = Drawing(980, 400, "A program is suspended while its call is in flight, and resumed by wait")
    for y, name in ((90, "client"), (175, "program"), (260, "snapshot"), (330, "call")):
        d.text(24, y + 5, name, anchor="start", weight=600)
        d.line(120, y, 956, y)
    d.bar(140, 76, 170, 28, BLUE, "exec")
    d.bar(720, 76, 190, 28, BLUE, "wait")
    d.bar(150, 161, 70, 28, GREEN, "runs")
    d.bar(220, 161, 82, 28, GREY, "awaits")
    d.bar(310, 246, 420, 28, ORANGE, "a few kilobytes, and no thread")
    d.bar(732, 161, 166, 28, GREEN, "continues where it was")
    d.bar(220, 316, 440, 28, GREY, "the upstream server works")
    d.arrow((220, 191), (220, 312))
    d.arrow((310, 191), (310, 243))
    d.arrow((730, 243), (730, 192))
    d.arrow((660, 314), (660, 277), dashed=True)
    d.text(310, 54, "waiting, runId", size=13, colour=QUIET)
    d.arrow((310, 62), (310, 74))
    d.text(910, 54, "completed, value", size=13, colour=QUIET, anchor="middle")
    d.arrow((910, 62), (910, 74))
    d.text(515, 136, "seconds or hours; the model does other things", size=13, colour=QUIET)
    d.text(668, 303, "result is kept", size=13, colour=QUIET, anchor="start")
    d.text(500, 382, "time →", size=13, colour=QUIET)
    return d.done()


PICTURES: Mapping[str, Callable[[], str]] = {
    "overview.svg": overview,
    "states.svg": states,
    "calls.svg": calls,
    "timeline.svg": timeline,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
