"""Rules that look for wording that a person should see before a definition is accepted."""
