"""The command that compares many programs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from codemode_mcp.base.paths import cache_dir
from codemode_mcp.program.intl import intl_reader
from codemode_mcp.sandbox.compiled import compiled_path
from codemode_mcp.sandbox.engine import open_engine
from tests.conftest import COMPILED
from tests.differential.comparison import FAMILIES, chosen, compare, generate
from tests.differential.sides import Guests, Node, missing_node


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description="Compare guests with Node 20.")
    parser.add_argument("--programs", type=int, default=1000, help="number of programs, of all chosen families")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="a family; all families without it")
    parser.add_argument("--number", type=int, help="run one program of a family again, and show both outcomes")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # programs have lone surrogates
    if why := missing_node():
        sys.exit(why)
    names = options.family or list(FAMILIES)
    programs = chosen(names, options.seed, options.programs)
    if options.number is not None:
        programs = [generate(name, options.seed, options.number) for name in names]
    unexplained: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        cache = COMPILED if compiled_path(COMPILED) is not None else Path(folder)
        with open_engine(cache, max_threads=1, intl=intl_reader(cache_dir())) as engine, Node() as node:
            guests = Guests(engine)
            if options.number is not None:
                for program, outcome in zip(programs, node.run([each.body for each in programs]), strict=True):
                    here = guests.run(program.source, program.language)
                    print(f"{program.source}\n--- node\n{outcome}\n--- here\n{here}")
                return 0
            for difference in compare(programs, node, guests):
                if difference.reason is not None:
                    explained[difference.reason] += 1
                    continue
                unexplained[difference.program.family] += 1
                print(difference, end="\n\n", flush=True)
    print(f"{len(programs)} programs of {len(names)} families")
    for reason, count in explained.most_common():
        print(f"{count} accepted: {reason}")
    print(f"{unexplained.total()} unexplained: {dict(unexplained)}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
