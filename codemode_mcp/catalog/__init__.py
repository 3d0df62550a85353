"""The tools that a program sees: their names, declaration files, and one catalog for each policy."""
