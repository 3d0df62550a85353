"""Saved programs: the files of the folder `programs` beside the configuration file, each with one function."""
