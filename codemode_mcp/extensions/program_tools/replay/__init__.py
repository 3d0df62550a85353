"""Replays: programs run again with the answers of a recording, without servers. `player` says how."""
