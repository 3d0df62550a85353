"""The commands, one module each or for a pair. A module is imported when its command is run."""
