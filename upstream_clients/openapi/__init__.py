"""HTTP APIs with an OpenAPI document, as MCP servers in this process.

Pure, with `api` as their one door:

- `reading` and `document`: the text of a document as values of JSON, and its local references.
- `operations`: names, paths, addresses and logins.
- `schemas`: JSON Schemas, cut to a size.
- `arguments`, `bodies` and `requests`: the argument of a tool, and the request that it becomes.
- `api` also has the result that an answer becomes.

In and out:

- `transport`: the MCP server, behind the usual connection. `calls` has the calls of operations.
- `served`: the document in use, which is read again.
- `client`: requests with credentials; `next_request` decides about redirects and repetitions.
- `exchanges` and `connections`: one request and its answer.

The whole document is untrusted. Sizes, depths and counts are bounded, and one bad operation never hides the others: it
is in `Api.skipped` with the reason. Nothing that a document names is ever fetched.
"""
