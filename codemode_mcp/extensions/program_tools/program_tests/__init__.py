"""Tests of saved programs: recordings beside them are replayed against their current texts, and compared."""
