"""Find, load and validate the one configuration file, and return it as frozen settings.

`source` parses the file, and `nodes` has the checks of single values and the wording of messages. Each section has a
module: `servers` (with `server_entry`), `plugins`, `tools` (with `patterns` and `contexts`), `clients`, `store` and
`http`. `expand` and `secret_values` resolve variables, files, programs and the keyring. `load` puts all of it together.

Apart from that, `reload` watches the file, `trust` confirms files of working directories, `literals` finds secrets that
are written out, and `edit` and `formats` change files in place.
"""

from __future__ import annotations

from codemode_mcp.config.expand import Reading
from codemode_mcp.config.load import FILE_NAME, PATH_VARIABLE, Config, find_config, load_config, load_store

__all__ = ["FILE_NAME", "PATH_VARIABLE", "Config", "Reading", "find_config", "load_config", "load_store"]
