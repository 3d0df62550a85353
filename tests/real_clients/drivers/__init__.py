"""One module for each client: its configuration, its headless command line, the model API that it speaks."""

from tests.real_clients.drivers import (
    claude_code,
    codex,
    fastmcp,
    gemini_cli,
    inspector,
    langchain,
    openai_agents,
    opencode,
    pydantic_ai,
)

DRIVERS = (
    claude_code.DRIVER,
    codex.DRIVER,
    gemini_cli.DRIVER,
    opencode.DRIVER,
    inspector.DRIVER,
    pydantic_ai.DRIVER,
    openai_agents.DRIVER,
    fastmcp.DRIVER,
    langchain.DRIVER,
)
