"""Search by meaning, with a sentence model of the extra `semantic`."""
