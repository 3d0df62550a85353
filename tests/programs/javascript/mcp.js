// ---- the usual call => 1
const issue = await MCP.tracker.getIssue({ issue_id: 1 })
return unwrap(issue).id
// ---- a call as the last expression => 2
unwrap(await MCP.tracker.getIssue({ issue_id: 2 })).id
// ---- structuredContent => "bug"
const r = await MCP.tracker.getIssue({ issue_id: 1 })
r.structuredContent.label
// ---- the text of content => 3
const r = await MCP.tracker.getIssue({ issue_id: 3 })
JSON.parse(r.content[0].text).id
// ---- the original name => 4
const r = await MCP.tracker.get_issue({ issue_id: 4 })
unwrap(r).id
// ---- a destructured server => 5
const { tracker } = MCP
unwrap(await tracker.getIssue({ issue_id: 5 })).id
// ---- destructured servers with another name => [6, 6]
const { tracker: issues, reports } = MCP
const hours = unwrap(await reports.teamHours({ week: "2026-W23" }));
[unwrap(await issues.getIssue({ issue_id: 6 })).id, hours.people.length]
// ---- a destructured tool => 7
const { getIssue } = MCP.tracker
unwrap(await getIssue({ issue_id: 7 })).id
// ---- nested destructuring => 8
const { tracker: { getIssue } } = MCP
unwrap(await getIssue({ issue_id: 8 })).id
// ---- a server in a variable => 9
const gh = MCP.tracker
const issue = await gh.getIssue({ issue_id: 9 })
unwrap(issue).id
// ---- a tool in a variable => 10
const get = MCP.tracker.getIssue
unwrap(await get({ issue_id: 10 })).id
// ---- brackets => 11
unwrap(await MCP["tracker"]["getIssue"]({ issue_id: 11 })).id
// ---- brackets with the original name => 12
unwrap(await MCP['tracker'][`get_issue`]({ "issue_id": 12 })).id
// ---- names in variables => 13
const server = "tracker", tool = "getIssue"
unwrap(await MCP[server][tool]({ issue_id: 13 })).id
// ---- optional calls of what is not there => nothing
await MCP.nope?.x?.({})
// ---- an optional call of what is there => 14
unwrap(await MCP.tracker?.getIssue?.({ issue_id: 14 })).id
// ---- an optional call of a tool that is not there => "none"
(await MCP.tracker.nope?.({ a: 1 })) ?? "none"
// ---- in => [true, false, true, false]
["getIssue" in MCP.tracker, "nope" in MCP.tracker, "tracker" in MCP, "nope" in MCP]
// ---- typeof => ["function", "undefined", "object"]
[typeof MCP.tracker.getIssue, typeof MCP.tracker.nope, typeof MCP.tracker]
// ---- if on a member that is not there => "absent"
if (MCP.tracker.nope) {
  await MCP.tracker.nope({})
} else {
  return "absent"
}
// ---- if on a server that is not there => "absent"
let r = "absent"
if (MCP.github) r = await MCP.github.listIssues({ owner: "x" })
r
// ---- && on a member => nothing
MCP.tracker.nope && await MCP.tracker.nope({})
// ---- || on a member => "function"
const list = MCP.tracker.nope || MCP.tracker.listIssues
typeof list
// ---- ?? on a server => 15
const server = MCP.issues ?? MCP.tracker
unwrap(await server.getIssue({ issue_id: 15 })).id
// ---- a ternary on a member => "no"
const r = MCP.tracker.nope ? await MCP.tracker.nope() : "no"
r
// ---- an early return on a missing member => "missing"
if (!MCP.tracker.nope) return "missing"
await MCP.tracker.nope({})
// ---- typeof as a guard => "none"
if (typeof MCP.tracker.nope === "function") { await MCP.tracker.nope({}) }
else { return "none" }
// ---- a comparison with undefined as a guard => "undefined"
MCP.tracker.nope === undefined ? "undefined" : await MCP.tracker.nope()
// ---- try as a guard => "TypeError"
try {
  await MCP.tracker.nope({})
} catch (e) {
  return e.name
}
// ---- hasOwnProperty as a guard => "no"
Object.hasOwn(MCP.tracker, "nope") ? await MCP.tracker.nope() : "no"
// ---- a function that guards => "fallback"
async function call(server, tool, input) {
  const f = MCP[server]?.[tool]
  return f ? unwrap(await f(input)) : "fallback"
}
call("tracker", "nope", {})
// ---- MCP as a parameter => "fake"
const run = async (MCP) => MCP.nope.thing()
run({ nope: { thing: () => "fake" } })
// ---- MCP as a local constant => "fake"
{
  const MCP = { tracker: { nope: () => "fake" } }
  var r = MCP.tracker.nope()
}
r
// ---- MCP as a destructured parameter => "fake"
(({ MCP }) => MCP.x.y())({ MCP: { x: { y: () => "fake" } } })
// ---- MCP as a class => "fake"
(() => { class MCP { static nope() { return "fake" } } return MCP.nope() })()
// ---- a member called MCP => 3
const ctx = { MCP: { a: { b: () => 3 } } }
ctx.MCP.a.b()
// ---- the names of all servers => ["reports", "scratch", "tracker"]
Object.keys(MCP).filter((name) => !name.startsWith("$")).sort()
// ---- the names of all tools => true
const names = Object.keys(MCP.tracker)
names.includes("getIssue") && names.includes("listPeople")
// ---- iterating over servers and members => ["reports.teamHours", "tracker.getIssue"]
const found = []
for (const server in MCP) {
  for (const [name, tool] of Object.entries(MCP[server])) {
    if (typeof tool === "function" && ["teamHours", "getIssue"].includes(name) && server !== "scratch") found.push(`${server}.${name}`)
  }
}
found.sort()
// ---- passing MCP on => 16
const using_ = async (servers, id) => unwrap(await servers.tracker.getIssue({ issue_id: id }))
const { id } = await using_(MCP, 16)
id
// ---- globalThis.MCP => 17
unwrap(await globalThis.MCP.tracker.getIssue({ issue_id: 17 })).id
// ---- MCP in a class => 18
class Tracker {
  #server = MCP.tracker
  async get(id) { return unwrap(await this.#server.getIssue({ issue_id: id })) }
}
(await new Tracker().get(18)).id
// ---- MCP in a generator => [1, 2]
async function* issues(ids) { for (const id of ids) yield unwrap(await MCP.tracker.getIssue({ issue_id: id })) }
const ids = []
for await (const issue of issues([1, 2])) ids.push(issue.id)
ids
// ---- Promise.all => [1, 2, 3]
const issues = await Promise.all([1, 2, 3].map((issue_id) => MCP.tracker.getIssue({ issue_id })))
issues.map((r) => unwrap(r).id)
// ---- Promise.all with destructuring => [24, 6]
const [issues, people] = await Promise.all([
  MCP.tracker.listIssues({ state: "open" }),
  MCP.tracker.listPeople(),
]);
[unwrap(issues).total, unwrap(people).people.length]
// ---- Promise.all over servers => ["tracker", "reports"]
const calls = { tracker: MCP.tracker.listPeople(), reports: MCP.reports.teamHours({ week: "2026-W21" }) }
await Promise.all(Object.values(calls))
Object.keys(calls)
// ---- Promise.allSettled with a bad argument => ["fulfilled", "rejected"]
const results = await Promise.allSettled([MCP.tracker.getIssue({ issue_id: 1 }), MCP.tracker.getIssue({ issue_id: "one" })])
results.map((r) => r.status)
// ---- Promise.race => 6
unwrap(await Promise.race([MCP.tracker.listPeople(), new Promise(() => {})])).people.length
// ---- Promise.any => 19
const r = await Promise.any([MCP.tracker.getIssue({ issue_id: 0 }), MCP.tracker.getIssue({ issue_id: 19 })])
unwrap(r).id
// ---- then and catch => "ok"
MCP.tracker.getIssue({ issue_id: 1 }).then(unwrap).then(() => "ok").catch(() => "not ok")
// ---- map with unwrap => ["open", "closed"]
const results = await Promise.all([1, 2].map((n) => MCP.tracker.getIssue({ issue_id: n })))
results.map(unwrap).map((i) => i.state)
// ---- reduce over calls => 6
const total = await [1, 2, 3].reduce(async (sum, issue_id) => (await sum) + unwrap(await MCP.tracker.getIssue({ issue_id })).id, Promise.resolve(0))
total
// ---- for await over calls => [1, 2]
const ids = []
for await (const r of [1, 2].map((issue_id) => MCP.tracker.getIssue({ issue_id }))) ids.push(unwrap(r).id)
ids
// ---- a tool that fails gives isError => [true, "There is no issue 999"]
const r = await MCP.tracker.getIssue({ issue_id: 999 });
[r.isError, r.content[0].text.match(/There is no issue \d+/)[0]]
// ---- unwrap of a tool that fails throws => ["ToolError", "nested_tool_failed"]
try { unwrap(await MCP.tracker.getIssue({ issue_id: 999 })) } catch (e) { return [e.name, e.code] }
// ---- wrong arguments reject => [true, true]
const e = await MCP.tracker.getIssue({ id: 1 }).catch((e) => e);
[e instanceof Error, e.message.includes("issue_id")]
// ---- no arguments where none are needed => 30
unwrap(await MCP.tracker.listIssues()).total
// ---- spread arguments => 1
const input = [{ issue_id: 1 }]
unwrap(await MCP.tracker.getIssue(...input)).id
// ---- a resource => true
const { contents } = await MCP.tracker.resources.read({ uri: "tracker://labels" })
contents[0].text.includes("bug")
// ---- a prompt => "user"
const { messages } = await MCP.tracker.prompts.get({ name: "triage", arguments: { label: "bug" } })
messages[0].role
// ---- the header of a server => ["mcp_api", "server"]
const header = await MCP.tracker.$api();
[header.kind, header.scope]
// ---- an alias of a namespace in a closure => 20
const api = (() => { const t = MCP.tracker; return { get: (id) => t.getIssue({ issue_id: id }).then(unwrap) } })()
api.get(20).then((i) => i.id)
// ---- a call inside a template => "Issue 21: API examples in Python"
`Issue 21: ${unwrap(await MCP.tracker.getIssue({ issue_id: 21 })).title}`
// ---- a call inside a condition => "open"
if (unwrap(await MCP.tracker.getIssue({ issue_id: 1 })).state === "open") {
  return "open"
}
return "closed"
// ---- a table of tools => [1, 6]
const tools_ = {
  issue: (id) => MCP.tracker.getIssue({ issue_id: id }),
  people: () => MCP.tracker.listPeople(),
}
const i = unwrap(await tools_.issue(1)), p = unwrap(await tools_.people());
[i.id, p.people.length]
