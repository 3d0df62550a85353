"""Decisions about calls: rules, approvals and budgets, and definitions that a person has accepted."""
