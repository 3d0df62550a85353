"""Two published HTTP APIs with documents of their own: `served_apis.py`. It prints the ports of httpbin and of Kinto.

The environment `apis` of `SERVER_PINS` in `tests/run.py` runs it. Kinto keeps its objects in memory.
"""

from __future__ import annotations

import json
import threading

import kinto
from httpbin import app
from waitress import create_server

MEMORY = {f"kinto.{kind}_backend": f"kinto.core.{kind}.memory" for kind in ("storage", "cache", "permission")}
SETTINGS = {"multiauth.policies": "basicauth", "kinto.bucket_create_principals": "system.Authenticated"}

servers = [
    create_server(application, host="127.0.0.1", port=0)
    for application in (app, kinto.main({}, **MEMORY, **SETTINGS, **{"kinto.paginate_by": "10"}))
]
for server in servers:
    threading.Thread(target=server.run, daemon=True).start()
print(json.dumps([server.effective_port for server in servers]), flush=True)
input()
