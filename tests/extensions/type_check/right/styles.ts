// ---- an own interface with fewer fields
interface Issue { number: number; title: string; state: string }
const show = (i: Issue): string => `#${i.number} ${i.title} (${i.state})`;
return unwrap(await MCP.issues.listIssues({ project: "a/b" })).items.map(show);
// ---- an own interface with more fields
interface Issue { number: number; title: string; url?: string; priority?: number }
const issues: Issue[] = unwrap(await MCP.issues.listIssues({ project: "a/b" })).items;
return issues.map((i) => i.priority ?? 0);
// ---- an own interface with a field that is not declared
interface Issue { number: number; title: string; htmlUrl: string }
const issues: Issue[] = unwrap(await MCP.issues.listIssues({ project: "a/b" })).items;
return issues.map((i) => i.title);
// ---- an own interface with narrower fields
interface Service { name: string; health: "healthy" | "degraded" | "down"; environment: "production" | "staging" }
const services: Service[] = unwrap(await MCP.deploy.listServices({ environment: "staging" })).services;
return services.filter((s) => s.health !== "healthy").map((s) => s.name);
// ---- an own interface by a cast
interface Issue { number: number; priority: string }
const issue = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 })) as Issue;
return issue.priority ?? "none";
// ---- an own type of the whole result
type ListResult = { structuredContent?: { items: { number: number }[] }; isError?: boolean };
const r = (await MCP.issues.listIssues({ project: "a/b" })) as ListResult;
return r.structuredContent?.items.length;
// ---- unwrap with an own type
interface Page { items: { number: number; title: string }[] }
const page = unwrap<Page>(await MCP.issues.listIssues({ project: "a/b" }));
return page.items.length;
// ---- unwrap with any
const page = unwrap<any>(await MCP.issues.listIssues({ project: "a/b" }));
return page.anything ?? page.items.length;
// ---- a helper with any
async function call(server: string, tool: string, input: any = {}): Promise<any> {
  const result = await (MCP as any)[server][tool](input);
  return unwrap(result);
}
const { labels } = await call("issues", "listLabels", { project: "a/b" });
return labels.length;
// ---- a helper with any results
const first = (r: any): any => r?.content?.[0]?.text;
return first(await MCP.files.readTextFile({ path: "/a" })).length;
// ---- a helper with unknown
function isRecord(v: unknown): v is Record<string, unknown> { return typeof v === "object" && v !== null; }
const v: unknown = unwrap(await MCP.chat.chatGetChannel({ channel: "C1" }));
return isRecord(v) && Array.isArray(v.members) ? v.members.length : 0;
// ---- a helper by Awaited
type Services = Awaited<ReturnType<typeof MCP.deploy.listServices>>;
const count = (r: Services) => r.structuredContent?.services.length ?? 0;
return count(await MCP.deploy.listServices({}));
// ---- a record of counts
const counts: Record<string, number> = {};
for (const i of unwrap(await MCP.issues.listIssues({ project: "a/b" })).items) counts[i.author.login] = (counts[i.author.login] ?? 0) + 1;
return Object.entries(counts).sort(([, a], [, b]) => b - a);
// ---- a record by a union
type Severity = "critical" | "warning" | "info";
const rank: Record<Severity, number> = { critical: 0, warning: 1, info: 2 };
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return [...alerts].sort((a, b) => rank[a.severity] - rank[b.severity]).map((a) => a.id);
// ---- a partial record
const icons: Partial<Record<string, string>> = { critical: "!" };
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return alerts.map((a) => icons[a.severity] ?? "-");
// ---- a state of own type
type Environment = "production" | "staging";
const check = async (environment: Environment) => unwrap(await MCP.deploy.listServices({ environment })).services.length;
return [await check("production"), await check("staging")];
// ---- a state of args
const environment = args[0] ?? "staging";
return unwrap(await MCP.deploy.listServices({ environment })).services.length;
// ---- a state by a cast
const environment = (args[0] ?? "staging") as "staging" | "production";
return unwrap(await MCP.deploy.listServices({ environment })).services.length;
// ---- a state by as any
const environment = "staging";
return unwrap(await MCP.deploy.listServices({ environment: environment as any })).services.length;
// ---- a list of unions
const days: ("MO" | "TU")[] = ["MO", "TU"];
return unwrap(await MCP.calendar.findFreeTime({ attendees: ["a"], durationMinutes: 30, from: "2026-03-01T00:00:00Z", to: "2026-03-02T00:00:00Z", workingHours: { start: "9", end: "17", days } })).slots.length;
// ---- a list of texts for unions
const features = "video,phone".split(",");
return unwrap(await MCP.calendar.listRooms({ features })).rooms.length;
// ---- a number of args
const n = Number(args[0] ?? 5);
return unwrap(await MCP.issues.getIssue({ project: "a/b", number: n })).number;
// ---- a number of a match
const match = "see #15".match(/#(\d+)/);
const number = match ? parseInt(match[1]!, 10) : 1;
return unwrap(await MCP.issues.getIssue({ project: "a/b", number })).number;
// ---- a value of any
const config: any = JSON.parse('{"project":"a/b","n":"3"}');
return unwrap(await MCP.issues.getIssue({ project: config.project, number: +config.n })).number;
// ---- a value of unknown by a cast
const config = JSON.parse('{"project":"a/b"}') as { project: string };
return unwrap(await MCP.issues.listLabels(config)).labels.length;
// ---- a value of an optional parameter
async function labels(project?: string) { return unwrap(await MCP.issues.listLabels({ project: project! })).labels; }
return (await labels("a/b")).length;
// ---- a value of an optional parameter, without a mark
async function labels(project?: string) { return unwrap(await MCP.issues.listLabels({ project })).labels; }
return (await labels("a/b")).length;
// ---- a value of a nullable parameter
async function owner(id: string | null) { return unwrap(await MCP.payments.getCustomer({ customerId: id })).email; }
return owner("c");
// ---- a value that may be false
const cond = true;
const project = cond && "a/b";
return unwrap(await MCP.issues.listLabels({ project })).labels.length;
// ---- a conditional spread of false
const label = "bug";
return unwrap(await MCP.issues.listIssues({ project: "a/b", ...(label !== "" && { labels: [label] }) })).items.length;
// ---- arguments as Record<string, any>
const query: Record<string, any> = { project: "a/b" };
query.state = "open";
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments as object
const query: object = { project: "a/b" };
return unwrap(await MCP.issues.listIssues(query as any)).items.length;
// ---- arguments by Pick and Omit
type Input = Omit<Parameters<typeof MCP.issues.createIssue>[0], "project">;
const create = (input: Input) => MCP.issues.createIssue({ project: "a/b", ...input });
return unwrap(await create({ title: "T" })).number;
// ---- arguments of a list of partial objects
const todo: { title: string; labels?: string[] }[] = [{ title: "A" }, { title: "B", labels: ["x"] }];
return (await Promise.all(todo.map((t) => MCP.issues.createIssue({ project: "a/b", ...t })))).length;
// ---- arguments of an own class
class NewIssue { project = "a/b"; constructor(public title: string, public labels: string[] = []) {} }
return unwrap(await MCP.issues.createIssue(new NewIssue("T"))).number;
// ---- an own union for the date
type When = { kind: "allDay"; startDate: string; endDate: string } | { kind: "timed"; start: string; end: string };
const when: When = { kind: "allDay", startDate: "2026-05-01", endDate: "2026-05-02" };
return unwrap(await MCP.calendar.createEvent({ calendarId: "p", title: "T", when })).id;
// ---- an own interface for the date
interface When { kind: string; start?: string; end?: string; startDate?: string; endDate?: string }
const make = (day: string): When => ({ kind: "allDay", startDate: day, endDate: day });
return unwrap(await MCP.calendar.createEvent({ calendarId: "p", title: "T", when: make("2026-05-01") })).id;
// ---- addresses as an own type
type Recipient = string | { email: string; name?: string };
const to: Recipient[] = ["a@example.com", { email: "b@example.com" }];
return unwrap(await MCP.mail.sendMessage({ to, subject: "S", body: { text: "T" } })).messageId;
// ---- blocks as an own type
interface Block { type: string; text?: string }
const blocks: Block[] = [{ type: "section", text: "x" }, { type: "divider" }];
return unwrap(await MCP.chat.chatPostMessage({ channel: "C", text: "x", blocks })).ok;
// ---- blocks as any
const blocks: any[] = [{ type: "section", text: "x" }];
return unwrap(await MCP.chat.chatPostMessage({ channel: "C", text: "x", blocks })).ok;
// ---- money with a wider currency
const currency: string = "eur";
return unwrap(await MCP.payments.createPayment({ customerId: "c", money: { amount: 5, currency }, idempotencyKey: "k" })).id;
// ---- readonly results
const items: readonly { number: number }[] = unwrap(await MCP.issues.listIssues({ project: "a/b" })).items;
return items.map((i) => i.number);
// ---- a frozen argument
const base = Object.freeze({ project: "a/b", labels: ["x"] });
return unwrap(await MCP.issues.listIssues(base)).items.length;
// ---- a readonly interface
interface Query { readonly project: string; readonly labels: readonly string[] }
const query: Query = { project: "a/b", labels: ["x"] };
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- a generic pager
async function collect<T>(load: (cursor?: string) => Promise<{ items: T[]; cursor?: string | undefined }>): Promise<T[]> {
  const all: T[] = [];
  let cursor: string | undefined;
  let n = 0;
  do { const page = await load(cursor); all.push(...page.items); cursor = page.cursor; } while (cursor && ++n < 2);
  return all;
}
const issues = await collect(async (cursor) => {
  const { items, page } = unwrap(await MCP.issues.listIssues({ project: "a/b", cursor }));
  return { items, cursor: page.nextCursor };
});
return issues.length;
// ---- a generic map of promises
const byKey = async <K extends string, V>(keys: K[], f: (k: K) => Promise<V>) => Object.fromEntries(await Promise.all(keys.map(async (k) => [k, await f(k)] as const)));
return byKey(["api", "web"], async (name) => unwrap(await MCP.deploy.getService({ name, environment: "staging" })).health);
// ---- a result of a generic function
const value = async <T,>(p: Promise<T>): Promise<T> => p;
return unwrap(await value(MCP.issues.getMe({}))).login;
// ---- a function type of a tool
type Tool = (input: any) => Promise<McpToolResult<any>>;
const run = async (tool: Tool, input: unknown) => unwrap(await tool(input));
return (await run(MCP.issues.getIssue, { project: "a/b", number: 1 })).title;
// ---- a table of tools
const tools_: Record<string, (input: any) => Promise<any>> = { me: MCP.issues.getMe, labels: MCP.issues.listLabels };
return unwrap<any>(await tools_["labels"]!({ project: "a/b" })).labels.length;
// ---- a table of tools without types
const table = { me: MCP.issues.getMe, folders: MCP.mail.listFolders };
const out = [];
for (const [name, tool] of Object.entries(table)) out.push([name, (await tool({})).isError ?? false]);
return out;
// ---- errors by code
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) {
  const error = e as ToolCallError;
  return error.code ?? error.message;
}
// ---- errors in a list
const errors: string[] = [];
for (const project of ["missing", "a/b"]) {
  const r = await MCP.issues.listLabels({ project });
  if (r.isError) errors.push((r.content as any)[0].text);
}
return errors;
// ---- never in a helper
const fail = (message: string): never => { throw new Error(message); };
const me = unwrap(await MCP.issues.getMe({})) ?? fail("no user");
return me.login;
// ---- an assertion function
function assertText(v: unknown): asserts v is string { if (typeof v !== "string") throw new Error("no text"); }
const v = unwrap(await MCP.files.readTextFile({ path: "/a" }));
assertText(v);
return v.length;
// ---- a narrowing by Array.isArray
const r: unknown = unwrap(await MCP.database.aggregate({ collection: "c", pipeline: [] }));
return Array.isArray(r) ? r.length : 0;
// ---- optional chaining everywhere
const r = await MCP.deploy.getService({ name: "api", environment: "staging" });
return r?.structuredContent?.replicas?.ready ?? r?.content?.[0]?.text ?? null;
// ---- a field that is only in one of two results
const results = await Promise.all([MCP.issues.getIssue({ project: "a/b", number: 1 }), MCP.issues.getPullRequest({ project: "a/b", number: 2 })]);
return results.map((r) => unwrap<any>(r)).map((v) => (v.draft === undefined ? "issue" : "pull request"));
// ---- a union of results by in
const v = args.length ? unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 })) : unwrap(await MCP.issues.getPullRequest({ project: "a/b", number: 1 }));
return "draft" in v ? v.draft : v.comments;
// ---- dates and arithmetic
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.map((d) => d.finishedAt ? +new Date(d.finishedAt) - +new Date(d.createdAt) : null);
// ---- dates without plus
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.map((d) => new Date(d.finishedAt) - new Date(d.createdAt));
// ---- a private field and a static method
class Report {
  #lines: string[] = [];
  static async of(project: string) { const r = new Report(); r.#lines = unwrap(await MCP.issues.listIssues({ project })).items.map((i) => i.title); return r; }
  toString() { return this.#lines.join("\n"); }
}
return String(await Report.of("a/b"));
// ---- definite assignment
let me!: string;
await Promise.all([MCP.issues.getMe({}).then((r) => { me = unwrap(r).login; })]);
return me;
// ---- a variable that is used before TypeScript knows
let me: string;
await Promise.all([MCP.issues.getMe({}).then((r) => { me = unwrap(r).login; })]);
return me;
