// ---- the original name
return unwrap(await MCP.issues.list_issues({ project: "acme/web" })).items.length;
// ---- the original name in brackets
return unwrap(await MCP.deploy["list-services"]({ environment: "staging" })).services.length;
// ---- brackets
return unwrap(await MCP["issues"]["getMe"]({})).login;
// ---- names in variables
const server = "issues", tool = "getIssue";
return unwrap(await MCP[server][tool]({ project: "acme/web", number: 1 })).title;
// ---- a list of calls as data
const calls = [["issues", "getMe", {}], ["mail", "listFolders", {}], ["deploy", "listAlerts", { severity: "critical" }]];
const results = await Promise.all(calls.map(([server, tool, input]) => MCP[server][tool](input)));
return results.map(r => r.isError ?? false);
// ---- names of objects
const steps = [
  { server: "files", tool: "readTextFile", input: { path: "/a" } },
  { server: "files", tool: "getFileInfo", input: { path: "/a" } },
];
const out = [];
for (const { server, tool, input } of steps) out.push(unwrap(await MCP[server][tool](input)));
return out.length;
// ---- all tools of a server
return Object.keys(MCP.issues).filter(n => n.startsWith("list")).length;
// ---- entries of a server
return Object.entries(MCP.files).filter(([, tool]) => typeof tool === "function").map(([name]) => name).length;
// ---- all servers
const names = [];
for (const server in MCP) names.push(server);
return names;
// ---- typeof of a tool that may not be there
return typeof MCP.issues.archiveIssue === "function" ? "there" : "absent";
// ---- an optional call of a tool that is not there
return (await MCP.issues.archiveIssue?.({ number: 1 })) ?? "absent";
// ---- an optional call of a server that is not there
return (await MCP.github?.listIssues?.({ owner: "x" })) ?? "absent";
// ---- if around a server that is not there
if (MCP.jira) return await MCP.jira.searchIssues({ jql: "x" });
return "no jira";
// ---- in around a tool that is not there
if ("archiveIssue" in MCP.issues) await MCP.issues.archiveIssue({ number: 1 });
return "done";
// ---- one or another tool
const search = MCP.issues.findIssues ?? MCP.issues.searchIssues;
return unwrap(await search({ query: "x" })).items.length;
// ---- destructured servers
const { issues, deploy } = MCP;
const [me, services] = await Promise.all([issues.getMe({}), deploy.listServices({})]);
return [unwrap(me).login, unwrap(services).services.length];
// ---- destructured tools
const { getIssue, listComments: comments } = MCP.issues;
const issue = unwrap(await getIssue({ project: "acme/web", number: 1 }));
return unwrap(await comments({ project: "acme/web", number: issue.number })).items.length;
// ---- nested destructuring
const { mail: { listFolders }, chat } = MCP;
return [unwrap(await listFolders()).folders.length, unwrap(await chat.chatListChannels({})).channels.length];
// ---- tools by a condition
const tool = Date.now() > 0 ? MCP.issues.getIssue : MCP.issues.getPullRequest;
return unwrap(await tool({ project: "acme/web", number: 1 })).title;
// ---- tools in an object
const read = { text: MCP.files.readTextFile, info: MCP.files.getFileInfo };
const out = {};
for (const kind of Object.keys(read)) out[kind] = !(await read[kind]({ path: "/a" })).isError;
return out;
// ---- call and apply
return unwrap(await MCP.issues.getIssue.call(null, { project: "acme/web", number: 2 })).number;
// ---- bind
const get = MCP.issues.getIssue.bind(MCP.issues);
return unwrap(await get({ project: "acme/web", number: 2 })).number;
// ---- a header
const api = await MCP.$api();
return api.servers.map(s => `${s.identifier}: ${s.toolCount}`);
// ---- the header of a tool with its schemas
const api = await MCP.issues.$api("createIssue", { schema: true });
return Object.keys(api.schemas ?? {}).length >= 0;
// ---- a search
const hits = await API.search("close an issue", { limit: 3 });
return hits.map(h => h.call);
// ---- a search with an object
const hits = await API.search({ query: "send mail", server: "mail", limit: 2 });
return hits[0].signature.includes("(");
// ---- the best hit is called
const [hit] = await API.search("get the signed-in user of issues", 1);
const [, server, tool] = hit.call.split(".");
return typeof MCP[server][tool];
// ---- files of declarations
const { files } = await API.list("mcp/");
const { content } = await API.read(files[1].path);
return content.length > 100;
// ---- one declaration
return (await API.read("mcp/issues.d.ts#createIssue")).content.includes("createIssue");
// ---- tools.search
const found = await tools.search("anything");
return found.map(t => t.name);
// ---- all other tools
return ALL_TOOLS.filter(t => t.source !== "mcp").map(t => t.id);
// ---- tools.call that fails
try { return await tools.call("plugin:none:none", { a: 1 }); } catch (error) { return error.code ?? error.name; }
// ---- a tool that may be there
return typeof tools.someTool === "function" ? await tools.someTool({}) : "absent";
// ---- namespaces by name
const notes = namespaces.notes;
return notes ? await notes.list() : Object.keys(namespaces).length;
// ---- globalThis
const { issues } = globalThis.MCP;
return unwrap(await issues.getMe({})).login;
// ---- a global that is set
globalThis.cache = {};
globalThis.cache.me = unwrap(await MCP.issues.getMe({}));
return cache.me.login;
// ---- names of globals as variables
const text = unwrap(await MCP.files.readTextFile({ path: "/a" }));
const json = { text: text.length }, args = ["x"], name = "n";
return [json.text, args[0], name];
// ---- a parameter with the name of a global
const shout = (text) => text.toUpperCase();
const image = unwrap(await MCP.issues.getMe({})).login;
return shout(image);
// ---- an own unwrap
const value = (r) => { if (r.isError) throw new Error(r.content[0].text); return r.structuredContent; };
return value(await MCP.issues.getMe({})).login;
// ---- a Proxy over a server
const calls = [];
const logged = new Proxy({}, { get: (_, tool) => (input) => { calls.push(tool); return MCP.issues[tool](input); } });
unwrap(await logged.getMe({}));
return calls;
// ---- a class around a server
class Tracker {
  constructor(project) { this.project = project; this.seen = 0; }
  async issue(number) { this.seen++; return unwrap(await MCP.issues.getIssue({ project: this.project, number })); }
  get count() { return this.seen; }
}
const tracker = new Tracker("acme/web");
await tracker.issue(1);
return [(await tracker.issue(2)).title, tracker.count];
