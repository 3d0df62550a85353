"""The configuration of one client: the common file, with the variables of the client's environment. Blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.config import load_config
from codemode_mcp.config.confirmation import Gate, NotConfirmedError, is_confirmed
from codemode_mcp.errors import ConfigError
from codemode_mcp.instance.hello import Refusal
from codemode_mcp.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.config import Config, Reading
    from codemode_mcp.instance.hello import Hello


class ClientConfig:
    """The source of the configuration of one client.

    Args:
        path: the configuration file; None for the defaults.
        environ: the variables of the client.
    """

    def __init__(self, path: Path | None, hello: Hello, environ: Mapping[str, str]) -> None:
        self._path = path
        self._hello = hello
        self.environ = environ

    def load(self, reading: Reading | None = None) -> Config:
        """Return the configuration.

        Raises:
            ConfigError: the file is not valid, and `reading` is given.
            Refusal: the same, for the first reading.
        """
        gate = Gate(_refuse_unknown)
        if self._hello.found and self._path is not None:
            gate.remember(self._path)
        try:
            config = load_config(
                self._path,
                environ=self.environ,
                reading=reading,
                admit=gate.admit,
                locked=self._hello.options.locked,
            )
            return self._with_folders(config)
        except NotConfirmedError as error:
            if reading is not None:
                raise
            raise Refusal("not_confirmed", *error.problems) from None
        except ConfigError as error:
            if reading is not None:
                raise
            raise Refusal("invalid_config", *error.problems) from None

    def _with_folders(self, config: Config) -> Config:
        """Return the configuration with a working directory for each server that has none.

        A private server starts such servers in the folder of its client. Servers of several clients start in the folder
        of the configuration file, so that clients in different folders can share them.
        """
        common = Path.home() if config.path is None else config.path.parent
        folders = {"user": str(common), "client": self._hello.folder}
        upstreams = tuple(
            replace(spec, cwd=folders[spec.share]) if spec.cwd is None and spec.is_process else spec
            for spec in config.upstreams
        )
        return replace(config, upstreams=upstreams)


def _refuse_unknown(path: Path, value: object) -> None:
    if not is_confirmed(path, value, state_dir() / "confirmed"):
        raise NotConfirmedError(
            f"{path} was found in the working directory, and you have not confirmed its current content",
            "read it, then name it with --config, or give the command at a terminal, which asks you once",
        )
