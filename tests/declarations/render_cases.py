"""A renderer of schemas for an external judge: NDJSON `{"name", "schema"}` in, NDJSON `{"ts"}` out."""

import json
import sys

from declarations import render_schema

for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"ts": render_schema(request["schema"])}))
