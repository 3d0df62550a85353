"""Programs that run in Node 20 and in a guest, to find values and outputs that differ.

`python -m tests.differential --programs 5000 --seed 1` runs generated programs and prints the differences. A short run
is part of the tests. `docs/differences-from-node.md` lists the differences that are accepted.
"""
