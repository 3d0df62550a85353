"""The parts that this extension adds to the core."""

from __future__ import annotations

from codemode_mcp.extension_points import Command, Extension


def _of_server(name: str, place: int, *similar: str) -> Command:
    return Command(
        f"{__package__}.command_add",
        place,
        example=f"codemode-mcp {name} docs; codemode-mcp doctor shows the servers",
        similar=dict.fromkeys(similar, f"codemode-mcp {name} NAME"),
    )


EXTENSION = Extension(
    commands={
        "install": Command(
            f"{__package__}.command_install",
            10,
            example="codemode-mcp install --client cursor",
            similar={"uninstall": "codemode-mcp install --client NAME --undo"},
        ),
        "import": Command(
            f"{__package__}.command_import",
            20,
            extra="Name a file or a client with --from: codemode-mcp import --from {}",
        ),
        "add": Command(f"{__package__}.command_add", 30, example="codemode-mcp add https://example.com/mcp"),
        "remove": _of_server("remove", 40, "rm", "delete"),
        "enable": _of_server("enable", 50),
        "disable": _of_server("disable", 60),
        "doctor": Command(f"{__package__}.command_doctor", 70, similar={"check": "codemode-mcp doctor"}),
        "setup": Command(f"{__package__}.command_doctor", 80),
    }
)
