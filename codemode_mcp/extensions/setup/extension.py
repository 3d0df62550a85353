"""The parts that this extension adds to the core."""

from __future__ import annotations

from codemode_mcp.extension_points import Command, Extension

EXTENSION = Extension(
    commands={
        "install": Command(f"{__package__}.command_install", 10),
        "import": Command(f"{__package__}.command_import", 20),
        "add": Command(f"{__package__}.command_add", 30),
        "remove": Command(f"{__package__}.command_add", 40),
        "enable": Command(f"{__package__}.command_add", 50),
        "disable": Command(f"{__package__}.command_add", 60),
        "doctor": Command(f"{__package__}.command_doctor", 70),
        "setup": Command(f"{__package__}.command_doctor", 80),
    }
)
