"""The sandbox: QuickJS on WebAssembly. Knows neither MCP nor the event loop."""
