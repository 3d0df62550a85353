// ---- typed results => ["Ada Moreau", 5]
interface Person { email: string; name: string; team: string }
interface Issue { id: number; title: string; state: "open" | "closed"; assignee: string | null }

const [people, issues] = await Promise.all([
  MCP.tracker.listPeople().then((r) => unwrap<{ people: Person[] }>(r).people),
  MCP.tracker.listIssues({ state: "open" }).then((r) => unwrap<{ issues: Issue[] }>(r).issues),
])
const byPerson = new Map<string, Issue[]>()
for (const issue of issues) {
  if (!issue.assignee) continue
  byPerson.set(issue.assignee, [...(byPerson.get(issue.assignee) ?? []), issue])
}
const ada: Person = people.find((p) => p.name.startsWith("Ada"))!
return [ada.name, byPerson.get(ada.email)!.length]
// ---- a typed helper => 3
async function get(issue_id: number): Promise<any> {
  return unwrap(await MCP.tracker.getIssue({ issue_id }))
}
(await get(3)).id
// ---- an assertion on the arguments => 4
unwrap(await MCP.tracker.getIssue({ issue_id: 4 } as any) as any).id
// ---- non-null assertions on server and tool => 5
const r = await MCP.tracker!.getIssue!({ issue_id: 5 })
unwrap(r).id
// ---- a server that may be absent => "absent"
const server = (MCP as any).nope
const r: string = server ? "there" : "absent"
r
// ---- a guard with an assertion => "absent"
if ((MCP.tracker as any).nope) await (MCP.tracker as any).nope({})
const r: string = "absent"
r
// ---- a guard with as before the call => "absent"
let r: string = "absent"
if (MCP.tracker.nope as any) r = await MCP.tracker.nope({})
r
// ---- a typed retry => ["ok", 2]
const retry = async <T>(work: () => Promise<T>, times: number = 3): Promise<T> => {
  let last: unknown
  for (let i = 0; i < times; i++) {
    try { return await work() } catch (e: unknown) { last = e }
  }
  throw last
}
let tries: number = 0
const value = await retry<string>(async () => { if (++tries < 2) throw new Error("again"); return "ok" });
[value, tries]
// ---- typed pages => [10, 10, 10]
type Page<T> = { items: T[]; next?: number }
const all: unknown[] = unwrap<{ issues: unknown[] }>(await MCP.tracker.listIssues()).issues
async function* pages<T>(xs: T[], size: number): AsyncGenerator<Page<T>, void> {
  for (let i = 0; i < xs.length; i += size) yield { items: xs.slice(i, i + size) }
}
const sizes: number[] = []
for await (const page of pages(all, 10)) sizes.push(page.items.length)
sizes
// ---- a typed class over a server => "Saved filters"
class Tracker {
  constructor(private readonly server = MCP.tracker) {}
  async title(id: number): Promise<string> {
    return unwrap<{ title: string }>(await this.server.getIssue({ issue_id: id })).title
  }
}
await new Tracker().title(12)
// ---- Parameters of a tool => 6
type Input = Parameters<typeof MCP.tracker.getIssue>[0]
const input: Input = { issue_id: 6 }
unwrap(await MCP.tracker.getIssue(input)).id
// ---- a record of calls => {"a": 7, "b": 8}
const ids: Record<"a" | "b", number> = { a: 7, b: 8 }
const out: Partial<Record<string, number>> = {}
for (const [k, issue_id] of Object.entries(ids) as ["a" | "b", number][]) {
  out[k] = unwrap(await MCP.tracker.getIssue({ issue_id })).id as number
}
out
// ---- MCP as a typed parameter => "fake"
const run = async (MCP: { nope: { thing(): string } }): Promise<string> => MCP.nope.thing()
await run({ nope: { thing: () => "fake" } })
// ---- create and read back => "typed"
const { id } = unwrap<{ id: number }>(await MCP.scratch.createIssue({ title: "typed", label: "bug" as const }))
unwrap<{ title: string }>(await MCP.scratch.getIssue({ issue_id: id })).title
// ---- store and load with types => [1, 2]
store("programs-ts", [1, 2] satisfies number[])
const back = (await load("programs-ts")) as number[]
back
