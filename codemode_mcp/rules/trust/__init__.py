"""Pins of what servers list: a change is held back until a person accepts it."""
