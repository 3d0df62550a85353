"""The composition root: opens, connects and closes everything."""
