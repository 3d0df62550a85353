"""Hypothesis strategies that several tests here share, and the clock their bounds are kept by."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.faults.fuzz.cases import case
from tests.properties import examples

ANY_TEXT = st.text(st.characters(categories=None), max_size=300)
"""Halves of surrogate pairs and control characters too."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)

PROGRAMS = st.integers(0, 10**9).map(lambda seed: case(seed).source)
"""Programs of the grammar, mutated, or of a known end."""

DEEP = st.builds(
    lambda start, end, count, inner: start * count + inner + end * count,
    st.sampled_from(
        ("(", "[", "{", "${", "`${", "function f(){", "if(a)", "a?", "!", "MCP.a.b(", "() => ", "<a>", "/*")
    ),
    st.sampled_from((")", "]", "}", "", "`", ";", ":b")),
    st.integers(0, 4000),
    st.sampled_from(("", "1", "MCP.x.y()", "return 1", "import 'x'")),
)
"""Nested further than anyone writes."""


FUZZ = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,  # one file, written again by each example
    ],
)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail when what is done inside takes more processor time."""
    began = time.thread_time()
    yield
    took = time.thread_time() - began
    assert took < seconds, f"{took:.2f} s of processor time"
