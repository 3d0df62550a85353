"""The one configuration file: loading and validating it. The result is a tree of frozen settings.

`source` parses the file. `nodes` has the checks of single values and the wording of messages. The sections are in
`servers` (with `server_entry` and `server_auth`), `tools` (with `expose`, contexts and clients) and `load` (`store`,
`http` and `plugins`), which combines all of these. `expand` and `secret_values` resolve variables, files, programs and
the keyring.

`reload` watches the file. `confirmation` records which files of working directories a person has confirmed. `literals`
finds secrets that are written into entries. `edit` and `edit_json` change files in place.
"""

from __future__ import annotations

from codemode_mcp.base.config_path import FILE_NAME, PATH_VARIABLE, find_config
from codemode_mcp.config.expand import Reading
from codemode_mcp.config.load import Config, load_config, load_store

__all__ = ["FILE_NAME", "PATH_VARIABLE", "Config", "Reading", "find_config", "load_config", "load_store"]
