"""The command that the suite starts as a client. It passes the scenario to the client inside the running test.

So nothing is imported again for each scenario, and the test sees errors of the client.
"""

import json
import os
import socket
import sys

host, _, port = os.environ["CONFORMANCE_CLIENT"].rpartition(":")
with socket.create_connection((host, int(port))) as connection:
    task = {
        "url": sys.argv[1],
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "revision": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    connection.sendall(json.dumps(task).encode() + b"\n")
    said = connection.makefile("r", encoding="utf-8").read()
print(said, file=sys.stderr)
sys.exit(0 if said == "done" else 1)
