"""Texts of saved programs, made from programs that have run. Pure.

`draft` has the whole text, `literals` finds the values in it that become parameters, and `parameters` names them.
"""

from codemode_mcp.extensions.program_tools.drafts.draft import Draft, make_draft, skeleton
from codemode_mcp.extensions.program_tools.drafts.parameters import Parameter

__all__ = ["Draft", "Parameter", "make_draft", "skeleton"]
