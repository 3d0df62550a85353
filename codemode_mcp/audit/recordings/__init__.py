"""Recordings: files with all that a program got and asked for, without configured secrets. `format` describes them."""
