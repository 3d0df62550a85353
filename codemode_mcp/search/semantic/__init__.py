"""Search by meaning with a sentence model, for which the extra `semantic` has to be installed.

`model` makes vectors of texts, `vector_file` stores them on disk, and `meaning` compares requests with the texts of
catalogs. The libraries of the extra are imported on first use.
"""

from codemode_mcp.search.semantic.meaning import Meaning
from codemode_mcp.search.semantic.model import Embedder, Unavailable, available

__all__ = ["Embedder", "Meaning", "Unavailable", "available"]
