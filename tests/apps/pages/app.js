// The part of an app that speaks with its host, without any package.
let last = 0;
const waiting = new Map();
addEventListener("message", ({ source, data }) => {
  if (source !== parent || data.jsonrpc !== "2.0") return;
  if (data.method === undefined) waiting.get(data.id)?.(data);
  else if (data.method === "ui/notifications/tool-input") say("input " + JSON.stringify(data.params.arguments));
  else if (data.method === "ui/notifications/tool-result") {
    say("result " + JSON.stringify(data.params.structuredContent));
  }
});
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const request = (method, params) => new Promise((resolve) => {
  waiting.set(++last, resolve);
  send({ id: last, method, params });
});
const say = (text) => document.body.append(Object.assign(document.createElement("p"), { textContent: text }));
const report = async (method, params) => {
  const { result, error } = await request(method, params);
  say(method + ": " + (error ? "refused, " + error.message : JSON.stringify(result)));
};
const begin = async () => {
  const appInfo = { name: "app", version: "1" };
  await request("ui/initialize", { protocolVersion: "2026-01-26", appInfo, appCapabilities: {} });
  send({ method: "ui/notifications/initialized", params: {} });
  send({ method: "ui/notifications/size-changed", params: { height: 300 } });
};
