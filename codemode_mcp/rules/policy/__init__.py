"""Decisions about calls: rules, effects of tools, approvals, and whom rules count for."""
