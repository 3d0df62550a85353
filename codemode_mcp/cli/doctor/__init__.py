"""Checks of an installation, as data: what was looked at, how it is, what to do.

`checkup` looks at everything at the same time; each other module has the checks of one thing: `config` (the file and
its variables), `machine` (Python, versions, nesting, HTTP, the trajectory), `folders`, `engine` (with its compile cache
and esbuild), `store`, `servers`, `plugins`, `policy`, `budget`, `search`. `report` orders and prints, `ahead` makes
what can be made ahead of time, for `codemode-mcp setup`.
"""

from codemode_mcp.cli.doctor.check import CHECKS, Check, Status
from codemode_mcp.cli.doctor.checkup import Checkup, check_everything
from codemode_mcp.cli.doctor.config import check_config

__all__ = ["CHECKS", "Check", "Checkup", "Status", "check_config", "check_everything"]
