// ---- open issues by person => {"ada@example.com": 5, "bo@example.com": 4}
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }))
const counts = {}
for (const { assignee } of issues) {
  if (!assignee) continue
  counts[assignee] = (counts[assignee] ?? 0) + 1
}
return Object.fromEntries(Object.entries(counts).filter(([, n]) => n > 3).sort(([a], [b]) => a.localeCompare(b)))
// ---- a join of two servers => [{"name": "Ada Moreau", "hours": 44}]
const [people, hours] = (await Promise.all([
  MCP.tracker.listPeople(),
  MCP.reports.teamHours({ week: "2026-W23" }),
])).map(unwrap);

const byEmail = new Map(hours.people.map((p) => [p.email, p.hours]));
people.people
  .map((p) => ({ name: p.name, hours: byEmail.get(p.email) }))
  .filter((p) => p.hours > 40);
// ---- create, comment and read back => ["Flaky test", 1]
const created = unwrap(await MCP.scratch.createIssue({ title: "Flaky test", label: "bug" }))
await MCP.scratch.commentIssue({ issue_id: created.id, author: "ada@example.com", text: "seen again" })
const issue = unwrap(await MCP.scratch.getIssue({ issue_id: created.id }));
[issue.title, issue.comments.length]
// ---- close in bulk => ["closed", "closed"]
const ids = await Promise.all(["a", "b"].map(async (title) => unwrap(await MCP.scratch.createIssue({ title, label: "docs" })).id))
const closed = []
for (const issue_id of ids) {
  const { state } = unwrap(await MCP.scratch.closeIssue({ issue_id }))
  closed.push(state)
}
closed
// ---- retries with a pause => ["ok", 3]
async function retry(work, times = 3, pause = 1) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work(attempt)
    } catch (error) {
      if (attempt >= times) throw error
      await new Promise((resolve) => setTimeout(resolve, pause * attempt))
    }
  }
}
let tries = 0
const result = await retry(async () => {
  if (++tries < 3) unwrap(await MCP.tracker.getIssue({ issue_id: 999 }))
  return "ok"
});
[result, tries]
// ---- pages of ten => [10, 10, 10]
const all = unwrap(await MCP.tracker.listIssues()).issues
const fetchPage = async (cursor = 0) => ({ items: all.slice(cursor, cursor + 10), next: cursor + 10 < all.length ? cursor + 10 : null })
const sizes = []
let cursor = 0
while (cursor !== null) {
  const page = await fetchPage(cursor)
  sizes.push(page.items.length)
  cursor = page.next
}
sizes
// ---- pages with do while => 30
const all = unwrap(await MCP.tracker.listIssues()).issues;
let seen = 0, offset = 0, page;
do {
  page = all.slice(offset, offset += 7);
  seen += page.length;
} while (page.length === 7);
seen;
// ---- a limited number of concurrent calls => [1, 2, 3, 4, 5, 6]
async function mapLimit(items, limit, work) {
  const results = new Array(items.length)
  let next = 0
  const worker = async () => {
    while (next < items.length) {
      const i = next++
      results[i] = await work(items[i])
    }
  }
  await Promise.all(Array.from({ length: limit }, worker))
  return results
}
await mapLimit([1, 2, 3, 4, 5, 6], 2, async (issue_id) => unwrap(await MCP.tracker.getIssue({ issue_id })).id)
// ---- errors gathered => {"found": [1], "missing": [998, 999]}
const found = [], missing = []
await Promise.all([1, 998, 999].map(async (issue_id) => {
  const r = await MCP.tracker.getIssue({ issue_id })
  ;(r.isError ? missing : found).push(issue_id)
}))
;({ found, missing: missing.sort() })
// ---- a Markdown table => "| label | open |\n| --- | --- |\n| docs | 4 |"
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open", label: "docs" }))
const header = "| label | open |\n| --- | --- |";
`${header}\n| docs | ${issues.length} |`
// ---- a report in text and a value => 24
const { total } = unwrap(await MCP.tracker.listIssues({ state: "open" }))
text(`There are ${total} open issues.`)
console.log("total", total)
json({ total })
total
// ---- the oldest issue of each label => {"bug": 1, "performance": 3, "feature": 4, "docs": 5}
const oldest = {}
for (const issue of unwrap(await MCP.tracker.listIssues({ state: "open" })).issues) {
  oldest[issue.label] ??= issue.id
}
oldest
// ---- a search and then a call by what it found => "MCP.tracker.listPeople"
const hits = await API.search("list everybody who can have issues", { server: "tracker", limit: 3 })
hits.map((hit) => hit.call).find((call) => call.endsWith("listPeople"))
// ---- reading the declarations first => [true, 1]
const { content } = await API.read("mcp/tracker.d.ts")
const has = content.includes("function getIssue(")
const r = await MCP.tracker.getIssue({ issue_id: 1 });
[has, unwrap(r).id]
// ---- the files of the API => ["mcp/index.d.ts", "mcp/reports.d.ts"]
const { files } = await API.list()
files.map((f) => f.path).filter((p) => /index|reports/.test(p)).sort()
// ---- store and load in one program => {"n": [1, 2]}
store("programs-1", { n: [1, 2] })
await load("programs-1")
// ---- load of what was never stored => true
(await load("programs-never")) === undefined
// ---- yield_control in the middle => ["before", "after"]
const log = ["before"]
await yield_control("a look")
log.push("after")
log
// ---- tools.call of an MCP tool says what to write => true
try {
  await tools.call("mcp:tracker:list_issues", {})
} catch (e) {
  return e.message.includes("MCP.tracker.listIssues")
}
// ---- tools.search finds no MCP tools => []
await tools.search("issues")
// ---- ALL_TOOLS has no MCP tools => ["core:results:list", "core:results:load"]
ALL_TOOLS.map((tool) => tool.id).sort()
// ---- a date window => 8
const { issues } = unwrap(await MCP.tracker.listIssues())
const from = new Date("2026-05-04"), to = new Date("2026-05-11")
issues.filter(({ created }) => new Date(created) >= from && new Date(created) <= to && /^2026/.test(created)).length
// ---- a lookup table by id => ["Saved filters", null]
const { issues } = unwrap(await MCP.tracker.listIssues())
const byId = Object.fromEntries(issues.map((i) => [i.id, i]));
[byId[12].title, byId[15].assignee]
// ---- text search => [1, 29]
const { issues } = unwrap(await MCP.tracker.listIssues())
const query = /session|password/i
issues.filter((i) => query.test(i.title)).map((i) => i.id)
// ---- hours over three weeks => 104
const weeks = ["2026-W21", "2026-W22", "2026-W23"]
let hours = 0
for (const week of weeks) {
  const { people } = unwrap(await MCP.reports.teamHours({ week }))
  const dina = people.find((p) => p.email.startsWith("dina"))
  hours += dina.hours
}
Math.round(hours)
// ---- a report that takes its time => "EUR"
const report = unwrap(await MCP.reports.generateReport({ kind: "cost", seconds: 0 }))
report.unit
// ---- fire and forget, then an answer => "sent"
MCP.scratch.createIssue({ title: "fire and forget", label: "feature" })
"sent"
// ---- a small state machine => ["todo", "doing", "done"]
const next = { todo: "doing", doing: "done" }
const path = []
for (let state = "todo"; state; state = next[state]) path.push(state)
path
// ---- CSV => "id,title\n1,\"Login loops when the session cookie has expired\""
const cell = (v) => (typeof v === "string" ? `"${v.replaceAll('"', '""')}"` : String(v))
const rows = [1].map(async (issue_id) => unwrap(await MCP.tracker.getIssue({ issue_id })))
const lines = (await Promise.all(rows)).map((r) => [r.id, r.title].map(cell).join(","));
["id,title", ...lines].join("\n")
// ---- a JSON Patch by hand => {"a": {"b": 3}, "c": [1]}
const doc = { a: { b: 2 }, c: [] }
const patch = [{ op: "replace", path: "/a/b", value: 3 }, { op: "add", path: "/c/-", value: 1 }]
for (const { op, path, value } of patch) {
  const keys = path.slice(1).split("/"), last = keys.pop()
  const target = keys.reduce((o, k) => o[k], doc)
  if (op === "add" && last === "-") target.push(value)
  else target[last] = value
}
doc
