// The smallest host of MCP Apps: the official client and the official bridge, unchanged, and a sandbox of another origin
// as the specification describes it. Tests drive it by `host`.
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const APPS = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
const INFO = { name: "test-host", version: "1" };

const host = (globalThis.host = { client: null, tools: [], calls: [], messages: [] });

host.connect = async (url, apps = true) => {
  host.client = new Client(INFO, { capabilities: apps ? { extensions: APPS } : {} });
  await host.client.connect(new StreamableHTTPClientTransport(new URL(url)));
  host.tools = (await host.client.listTools()).tools;
  return host.client.getServerCapabilities();
};

function sandbox(id, csp) {
  const frame = document.createElement("iframe");
  frame.id = id;
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.style = "width: 800px; height: 0; border: 1px solid";
  const ready = new Promise((resolve) => {
    addEventListener("message", function wait(event) {
      if (event.source !== frame.contentWindow || event.data?.method !== "ui/notifications/sandbox-proxy-ready") return;
      removeEventListener("message", wait);
      resolve();
    });
  });
  const address = new URL(host.sandbox);
  address.searchParams.set("csp", JSON.stringify(csp ?? {}));
  frame.src = address.href;
  document.body.append(frame);
  return ready.then(() => frame);
}

// Call a tool and show its app, if it has one, in a frame with an id.
host.run = async (id, name, args) => {
  const tool = host.tools.find((each) => each.name === name);
  const uri = tool === undefined ? undefined : getToolUiResourceUri(tool);
  const resource = uri === undefined ? undefined : (await host.client.readResource({ uri })).contents[0];
  const result = host.client.request({ method: "tools/call", params: { name, arguments: args } });
  if (resource === undefined) return result;
  const { csp, permissions } = resource._meta?.ui ?? {};
  const frame = await sandbox(id, csp);
  const capabilities = host.client.getServerCapabilities();
  const bridge = new AppBridge(host.client, INFO, { openLinks: {}, serverTools: capabilities.tools, serverResources: capabilities.resources });
  bridge.onsizechange = ({ height }) => {
    if (height !== undefined) frame.style.height = height + "px";
  };
  bridge.onmessage = async (params) => (host.messages.push(params), {});
  bridge.onopenlink = async () => ({});
  bridge.onloggingmessage = () => {};
  const initialized = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  const passed = bridge.oncalltool;
  bridge.oncalltool = (params, extra) => (host.calls.push(params), passed(params, extra));
  await bridge.sendSandboxResourceReady({ html: resource.text, csp, permissions });
  await initialized;
  bridge.sendToolInput({ arguments: args });
  const ended = await result;
  bridge.sendToolResult(ended);
  return ended;
};
