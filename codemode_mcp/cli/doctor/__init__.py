"""Checks of an installation, as data: the subject, the status, and advice.

`checkup` runs all checks concurrently. The checks of each subject are in one module: `config` (the file and its
variables), `machine` (Python, versions, nesting, HTTP, the trajectory), `folders`, `instance`, `engine` (with its
compile cache and esbuild), `store`, `servers`, `plugins`, `policy`, `budget`, `search`, `entries` (of clients) and
`connected_clients`.
`check` defines a check, `report` prints the results, and `ahead` prepares an installation for `codemode-mcp setup`.
"""

from codemode_mcp.cli.doctor.check import CHECKS, Check, Status
from codemode_mcp.cli.doctor.checkup import Checkup
from codemode_mcp.cli.doctor.config import check_config

__all__ = ["CHECKS", "Check", "Checkup", "Status", "check_config"]
