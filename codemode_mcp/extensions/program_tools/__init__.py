"""Tools for the authors of saved programs: drafts, tests and replays."""
