"""Search by meaning, with what the optional extra `semantic` installs; nothing is imported or read before it is used.

`model` makes vectors of texts, `vector_file` keeps them on disk, `meaning` compares requests with texts of catalogs.
"""

from codemode_mcp.search.semantic.meaning import Meaning
from codemode_mcp.search.semantic.model import Embedder, Unavailable, available

__all__ = ["Embedder", "Meaning", "Unavailable", "available"]
