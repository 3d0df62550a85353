"""Checks of an installation, as data: the subject, the status, and advice.

`checkup` runs all checks concurrently, and prepares an installation for `codemode-mcp setup`. `check` defines a check
and prints the results. The checks are in `configuration` (the file, policy, plugins, saved programs), `servers` (with
HTTP APIs and the size of the tool list), `engine` (with esbuild, the type check, search and the store) and `machine`
(the installation, folders, the shared instance, and clients).
"""

from codemode_mcp.cli.check import CHECKS, Check, Status
from codemode_mcp.extensions.setup.doctor.checkup import Checkup
from codemode_mcp.extensions.setup.doctor.configuration import check_config

__all__ = ["CHECKS", "Check", "Checkup", "Status", "check_config"]
