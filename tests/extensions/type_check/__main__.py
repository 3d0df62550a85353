"""Print the declarations of the tools, or of as many tools as the argument says."""

from __future__ import annotations

import sys

from tests.extensions.type_check.tool_lists import declarations, views

for path, text in declarations(views(int(sys.argv[1])) if len(sys.argv) > 1 else None).items():
    print(f"// {path}\n{text}")
