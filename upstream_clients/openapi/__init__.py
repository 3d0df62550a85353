"""HTTP APIs with an OpenAPI document, as MCP servers in this process.

Pure, with `api` as their one door:

- `reading`, `document` and `swagger2`: the text of a document as values of JSON, and its local references.
- `operations` and `servers`: names, paths, addresses and logins.
- `schemas`, `keywords` and `bounds`: JSON Schemas, cut to a size.
- `arguments`, `bodies`, `styles` and `requests`: the argument of a tool, and the request that it becomes.
- `answers`: the result that an answer becomes.

In and out:

- `server`: the MCP server, behind the usual connection. `calls` has the calls of operations.
- `served`: the document in use, which is read again. `source` has its bytes.
- `client`: requests with credentials, `redirects` and `retries`.
- `exchanges` and `connections`: one request and its answer. `answer_bytes` and `response_body` read answers.

The whole document is untrusted. Sizes, depths and counts are bounded, and one bad operation never hides the others: it
is in `Api.skipped` with the reason. Nothing that a document names is ever fetched.
"""
