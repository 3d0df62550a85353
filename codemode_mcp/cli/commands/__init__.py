"""The commands. Each module has one command or a pair of commands. A module is imported when its command is run."""
