"""Rank texts for a request in everyday words. Pure, but for two files of its own; knows nothing of tools.

`words` splits and stems, `thesaurus` knows what people call things, `index` ranks by words, `vectors` compares meaning,
`wishes` splits a request that asks for several things.
"""

from codemode_mcp.search.index import Field, Index
from codemode_mcp.search.thesaurus import Thesaurus, shipped_thesaurus
from codemode_mcp.search.vectors import WordVectors, shipped_vectors, similarity
from codemode_mcp.search.wishes import wishes
from codemode_mcp.search.words import telling_words, words

__all__ = [
    "Field",
    "Index",
    "Thesaurus",
    "WordVectors",
    "shipped_thesaurus",
    "shipped_vectors",
    "similarity",
    "telling_words",
    "wishes",
    "words",
]
