"""Timelines of runs, drawn at a terminal or as one page of HTML."""
