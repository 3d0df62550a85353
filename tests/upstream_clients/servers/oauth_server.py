"""A protected MCP server with its own authorization server: `oauth_server.py PORT [flags]`.

Prints a line when it serves. Every client of `/authorize` is let in immediately. `GET /seen` lists the requests of the
endpoints; `POST /forget` makes every access token invalid, `POST /forget?all=1` every refresh token too; `POST
/be?flag=--deny` makes all as new, with other flags; `POST /change` changes the schema of `echo`. A call of `leak` fails
with what was in the request; one of `write` wants the scope `write`.
"""

from __future__ import annotations

import argparse
import secrets
import time
from urllib.parse import parse_qs

import anyio
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    ProviderTokenVerifier,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.lowlevel import Server
from mcp.shared.auth import OAuthToken
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--lifetime", type=int, default=3600)
parser.add_argument("--deny", action="store_true", help="the user says no")
parser.add_argument("--state", help="come back with this state, and not the one that was given")
parser.add_argument("--iss", help="come back with this issuer (RFC 9207)")
parser.add_argument("--issuer", help="what the metadata of the authorization server claims to be")
parser.add_argument("--resource", help="what the metadata of the server claims to be about")
parser.add_argument("--server", help="the authorization server that the server names")
parser.add_argument("--token-delay", type=float, default=0, help="seconds from a token request to its handling")
parser.add_argument("--token-endpoint", help="the token endpoint that is named")
parser.add_argument(
    "--metadata", choices=["huge", "busy", "away", "junk", "oidc", "none", "no-pkce", "no-registration", "secret"]
)
parser.add_argument("--token", choices=["garbage", "not-a-header", "broken", "empty"], dest="token_answer")
parser.add_argument("--unbound", action="store_true", help="take tokens that are for no resource in particular")
parser.add_argument("--open", action="store_true", help="let strangers in")
parser.add_argument("--greet", action="store_true", help="let strangers in, and show them `echo` alone")
parser.add_argument("--fixed-token", action="store_true", help="want a token, but offer no login")
arguments = parser.parse_args()

ORIGIN = f"http://127.0.0.1:{arguments.port}"
seen: list[dict[str, str]] = []


class Provider:
    def __init__(self) -> None:
        self.clients = {}
        self.codes = {}
        self.access = {}
        self.refresh = {}
        self.spent: set[str] = set()

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        seen.append({"register": client_info.client_id, "scope": client_info.scope or ""})
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        seen.append({"authorize": " ".join(params.scopes or []), "resource": params.resource or ""})
        state = arguments.state or params.state
        more = {"iss": arguments.iss} if arguments.iss else {}
        if arguments.deny:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=state, **more)
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=state, **more)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        if refresh_token in self.spent:
            # RFC 9700: the token was used twice, so it may be stolen, and the login ends for both users.
            seen.append({"reused": "a spent refresh token"})
            self.access.clear()
            self.refresh.clear()
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.spent.add(refresh_token.token)
        return self._tokens(client, scopes, refresh_token.resource)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        seen.append({"revoked": "a token"})
        self.access.clear()
        self.refresh.clear()

    def _tokens(self, client, scopes, resource):
        token, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        common = {"client_id": client.client_id, "scopes": list(scopes), "resource": resource}
        expires = int(time.time()) + max(arguments.lifetime, 60)
        self.access[token] = AccessToken(token=token, expires_at=expires, **common)
        self.refresh[refresh] = RefreshToken(token=refresh, **common)
        return OAuthToken(
            access_token=token, expires_in=arguments.lifetime, scope=" ".join(scopes), refresh_token=refresh
        )


provider = Provider()
NAMES = ("echo", "leak", "leak_as_result", "write")


changes: list[str] = []


async def list_tools(ctx, params):
    names = NAMES
    if arguments.greet and "authorization" not in ctx.request.headers:
        names = NAMES[:1]
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in names]
    if changes:
        tools[0].input_schema["properties"] = {"keys": {"type": "string"}}
    return ListToolsResult(tools=tools)


async def call_tool(ctx, params):
    leak = f"unexpected request with {ctx.request.headers.get('authorization')}"
    if params.name == "leak":
        raise MCPError(-32001, leak)
    if params.name == "leak_as_result":
        return CallToolResult(content=[TextContent(type="text", text=leak)], is_error=True)
    return CallToolResult(content=[TextContent(type="text", text=str((params.arguments or {}).get("text")))])


server = Server("oauth", on_list_tools=list_tools, on_call_tool=call_tool)
if arguments.open or arguments.fixed_token:
    app = server.streamable_http_app()
else:
    app = server.streamable_http_app(
        auth=AuthSettings(
            issuer_url=ORIGIN,
            resource_server_url=f"{ORIGIN}/mcp",
            required_scopes=["read"],
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["read", "write"], default_scopes=["read"]
            ),
            revocation_options=RevocationOptions(enabled=True),
            validate_token_resource=not arguments.unbound,
        ),
        auth_server_provider=provider,
        token_verifier=ProviderTokenVerifier(provider),
    )


greeting = server.streamable_http_app() if arguments.greet else app
"""The application at `/mcp`. With `--greet`, the gatekeeper checks the token of a request that has one."""


async def gatekeeper(scope, receive, send):
    if scope["type"] != "http":
        await greeting(scope, receive, send)
        return
    answer = await instead(scope, receive)
    if answer is not None:
        await answer(scope, receive, send)
    elif scope["path"] == "/mcp":
        await greeting(scope, *(await overheard(scope, receive, send)))
    elif scope["path"] == "/token":
        await app(scope, *(await overheard(scope, receive, send)))
    else:
        await app(scope, receive, send)


async def overheard(scope, receive, send):
    """Record the requests of the token endpoint; read the body and replay it."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/token":
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        seen.append({"token": form.get("grant_type", ""), "resource": form.get("resource", "")})
        await anyio.sleep(arguments.token_delay)
    given = False

    async def again():
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again, send


async def instead(scope, receive):
    path = scope["path"]
    if path == "/seen":
        return JSONResponse(seen)
    if path == "/be":
        flags = parse_qs(scope["query_string"].decode()).get("flag", [])
        vars(arguments).update(vars(parser.parse_args([str(arguments.port), *flags])))
        vars(provider).update(vars(Provider()))
        seen.clear()
        return PlainTextResponse("as you like")
    if path == "/change":
        changes.append("echo")
        return PlainTextResponse("changed")
    if path == "/forget":
        provider.access.clear()
        if b"all" in scope["query_string"]:
            provider.refresh.clear()
        return PlainTextResponse("forgotten")
    if path == "/mcp" and arguments.fixed_token:
        return PlainTextResponse("go away", 401, {"WWW-Authenticate": "Bearer"})
    if path == "/mcp":
        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        token = headers.get("authorization", "")
        seen.append({"mcp": token})
        if arguments.greet and token and token.removeprefix("Bearer ") not in provider.access:
            return PlainTextResponse("who are you", 401, {"WWW-Authenticate": "Bearer"})
        return not_enough(headers)
    if path == "/token":
        match arguments.token_answer:
            case "garbage":
                return PlainTextResponse("<html>oops</html>")
            case "not-a-header":
                return JSONResponse({"access_token": "one\ntwo", "token_type": "Bearer"})
            case "broken":
                return PlainTextResponse("out of order", 503)
            case "empty":
                return JSONResponse({"error": "invalid_grant", "error_description": "you sent SECRET"}, 400)
    if path.startswith("/.well-known/oauth-protected-resource"):
        return resource_metadata()
    if path.startswith("/.well-known/"):
        return server_metadata(path)
    return None


def not_enough(headers):
    if headers.get("mcp-name") != "write":
        return None
    known = provider.access.get(headers.get("authorization", "").removeprefix("Bearer "))
    if known is None or "write" in known.scopes:
        return None
    return PlainTextResponse(
        "more", 403, {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write", resource_metadata="x"'}
    )


def resource_metadata():
    match arguments.metadata:
        case "huge":
            return PlainTextResponse("{" + " " * 1_000_000)
        case "away":
            return RedirectResponse("http://127.0.0.1:9/elsewhere")
        case "junk":
            return PlainTextResponse("<html>")
        case "busy":
            return PlainTextResponse("try later", 503)
        case "none":
            return PlainTextResponse("nothing here", 404)
    if not (arguments.resource or arguments.server):
        return None
    return JSONResponse(
        {
            "resource": arguments.resource or f"{ORIGIN}/mcp",
            "authorization_servers": [arguments.server or ORIGIN],
            "scopes_supported": ["read"],
        }
    )


def server_metadata(path):
    if arguments.metadata == "none" or (arguments.metadata == "oidc" and "openid-configuration" not in path):
        return PlainTextResponse("nothing here", 404)
    # With a secret or without: this SDK does not let a client without one revoke anything.
    methods = ["client_secret_post"] if arguments.metadata == "secret" else ["none", "client_secret_post"]
    document = {
        "issuer": arguments.issuer or ORIGIN,
        "authorization_endpoint": f"{ORIGIN}/authorize",
        "token_endpoint": arguments.token_endpoint or f"{ORIGIN}/token",
        "registration_endpoint": f"{ORIGIN}/register",
        "revocation_endpoint": f"{ORIGIN}/revoke",
        "response_types_supported": ["code"],
        "token_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": ["plain"] if arguments.metadata == "no-pkce" else ["S256"],
    }
    if arguments.metadata == "no-registration":
        del document["registration_endpoint"]
    return JSONResponse(document)


class Serving(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print("serving", flush=True)


Serving(uvicorn.Config(gatekeeper, port=arguments.port, log_level="critical")).run()
