// ---- interfaces of one's own
interface Row { number: number; title: string; labels: string[] }
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
const rows: Row[] = items.map((i) => ({ number: i.number, title: i.title, labels: i.labels.map((l) => l.name) }));
return rows.length;
// ---- an unknown result as an interface
interface Listing { entries: { name: string; size?: number }[] }
const listing = unwrap(await MCP.files.listDirectory({ path: "/" })) as Listing;
return listing.entries.reduce((n, e) => n + (e.size ?? 0), 0);
// ---- an unknown result as any
const listing: any = unwrap(await MCP.files.listDirectory({ path: "/" }));
return listing.entries[0].name;
// ---- an unknown result with as any
const listing = (unwrap(await MCP.files.listDirectory({ path: "/" })) as any).entries;
return listing.map((e: any) => e.name);
// ---- an unknown result without a type
const listing = unwrap(await MCP.files.listDirectory({ path: "/" }));
return listing.entries.map((e) => e.name);
// ---- a type argument of unwrap
const channel = unwrap<{ id: string; members: string[] }>(await MCP.chat.chatGetChannel({ channel: "C1" }) as any);
return channel.members.length;
// ---- content without a type
const r = await MCP.files.readTextFile({ path: "/a" });
return r.content[0].text.length;
// ---- content with a type
type TextBlock = { type: "text"; text: string };
const r = await MCP.files.readTextFile({ path: "/a" });
const block = (r.content as TextBlock[])[0]!;
return block.text.length;
// ---- content by a guard
const isText = (b: unknown): b is { type: "text"; text: string } => typeof b === "object" && b !== null && (b as any).type === "text";
const r = await MCP.files.readTextFile({ path: "/a" });
return (r.content ?? []).filter(isText).map((b) => b.text);
// ---- structuredContent with an exclamation mark
const r = await MCP.issues.getMe({});
return r.structuredContent!.login;
// ---- structuredContent without one
const r = await MCP.issues.getMe({});
return r.structuredContent.login;
// ---- another shape by a cast
const issue = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 })) as unknown as { title: string; extra?: number };
return issue.extra ?? issue.title;
// ---- a caught error
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) { return e.message; }
// ---- a caught error as any
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e: any) { return e.code ?? e.message; }
// ---- a caught error by instanceof
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) { return e instanceof Error ? e.message : String(e); }
// ---- a caught error by a cast
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) { return (e as Error).message; }
// ---- functions without types
async function title(project, number) {
  const issue = unwrap(await MCP.issues.getIssue({ project, number }));
  return issue.title;
}
return title("acme/web", 2);
// ---- an object that grows
const out = {};
for (const name of ["api", "web"]) {
  out[name] = unwrap(await MCP.deploy.getService({ name, environment: "staging" })).health;
}
return out;
// ---- counts without types
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const counts = items.reduce((acc, i) => { acc[i.state] = (acc[i.state] || 0) + 1; return acc; }, {});
return counts;
// ---- counts with types
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const counts = items.reduce<Record<string, number>>((acc, i) => ({ ...acc, [i.state]: (acc[i.state] ?? 0) + 1 }), {});
return counts;
// ---- an empty list without a type
const out = [];
for (const number of [1, 2]) out.push(unwrap(await MCP.issues.getIssue({ project: "a/b", number })).title);
return out;
// ---- a state that is wider
const states: string[] = ["open", "closed"];
const n = [];
for (const state of states) n.push(unwrap(await MCP.issues.listIssues({ project: "a/b", state })).items.length);
return n;
// ---- a state of a function
function pick(done: boolean) { return done ? "closed" : "open"; }
return unwrap(await MCP.issues.listIssues({ project: "a/b", state: pick(true) })).items.length;
// ---- a state that is declared as text
const pick = (done: boolean): string => (done ? "closed" : "open");
return unwrap(await MCP.issues.updateIssue({ project: "a/b", number: 1, state: pick(true) })).state;
// ---- a state of an enum
enum State { Open = "open", Closed = "closed" }
return unwrap(await MCP.issues.listIssues({ project: "a/b", state: State.Open })).items.length;
// ---- states as const
const STATES = ["open", "closed"] as const;
type State = (typeof STATES)[number];
const count = async (state: State) => unwrap(await MCP.issues.listIssues({ project: "a/b", state })).items.length;
return await Promise.all(STATES.map(count));
// ---- a list as const
const LABELS = ["bug", "ui"] as const;
return unwrap(await MCP.issues.listIssues({ project: "a/b", labels: LABELS })).items.length;
// ---- arguments as a record
const input: Record<string, unknown> = { project: "a/b", number: 2 };
return unwrap(await MCP.issues.getIssue(input)).number;
// ---- arguments as any
const input: any = { project: "a/b" };
input.number = 2;
return unwrap(await MCP.issues.getIssue(input)).number;
// ---- arguments in a variable
const query = { project: "a/b", state: "open", sort: "created" };
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments with satisfies
const query = { project: "a/b", number: 1 } satisfies { project: string; number: number };
return unwrap(await MCP.issues.getIssue(query)).number;
// ---- arguments by Parameters
type Input = Parameters<typeof MCP.issues.listIssues>[0];
const input: Input = { project: "a/b", state: "closed" };
return unwrap(await MCP.issues.listIssues(input)).items.length;
// ---- arguments that grow
const query: { project: string; labels?: string[] } = { project: "a/b" };
query.labels = ["bug"];
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments that grow without a type
const query = { project: "a/b" };
query["labels"] = ["bug"];
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- a Partial of the arguments
const defaults: Partial<{ project: string; number: number }> = { project: "a/b" };
return unwrap(await MCP.issues.getIssue({ number: 2, ...defaults })).number;
// ---- an index that may be undefined
const byName: Record<string, number> = { login: 4 };
return unwrap(await MCP.issues.getIssue({ project: "a/b", number: byName["login"] })).number;
// ---- a Map value that may be undefined
const byName: Map<string, number> = new Map([["login", 4]]);
const number = byName.get("login");
return unwrap(await MCP.issues.getIssue({ project: "a/b", number })).number;
// ---- a Map value with an exclamation mark
const byName = new Map<string, number>([["login", 4]]);
return unwrap(await MCP.issues.getIssue({ project: "a/b", number: byName.get("login")! })).number;
// ---- an optional field as a required argument
const { users } = unwrap(await MCP.chat.chatListUsers({ limit: 200 }));
const found: unknown[] = [];
for (const user of users) if (!user.isBot || user.email !== undefined) found.push(await MCP.chat.chatFindUserByEmail({ email: user.email ?? "none@example.com" }));
return found.length;
// ---- an optional field after a filter
const { users } = unwrap(await MCP.chat.chatListUsers({ limit: 200 }));
const withMail = users.filter((u) => u.email);
const ids = await Promise.all(withMail.map((u) => MCP.chat.chatFindUserByEmail({ email: u.email })));
return ids.length;
// ---- a generic helper
async function all<T, R>(list: T[], f: (item: T) => Promise<R>): Promise<R[]> {
  return Promise.all(list.map(f));
}
const titles = await all([1, 2], async (number) => unwrap(await MCP.issues.getIssue({ project: "a/b", number })).title);
return titles;
// ---- a helper over results
async function value<T>(call: Promise<McpToolResult<T>>): Promise<T> { return unwrap(await call); }
return (await value(MCP.issues.getMe({}))).login;
// ---- the type of a result
type Issue = NonNullable<Awaited<ReturnType<typeof MCP.issues.getIssue>>["structuredContent"]>;
const describe = (i: Issue): string => `#${i.number} ${i.title}`;
return describe(unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 })));
// ---- a type of MCP
const isUser = (u: MCP.issues.User | null): boolean => u !== null && u.login.length > 0;
return isUser(unwrap(await MCP.issues.getMe({})));
// ---- a class with types
class Pager<T> {
  private items: T[] = [];
  constructor(private readonly load: (page: number) => Promise<T[]>) {}
  async all(pages: number): Promise<T[]> {
    for (let p = 0; p < pages; p++) this.items.push(...(await this.load(p)));
    return this.items;
  }
}
const pager = new Pager(async () => unwrap(await MCP.issues.listIssues({ project: "a/b" })).items);
return (await pager.all(2)).length;
// ---- overloads
function get(id: string): Promise<string>;
function get(id: number): Promise<number>;
async function get(id: any): Promise<any> { return typeof id === "number" ? unwrap(await MCP.issues.getIssue({ project: "a/b", number: id })).number : id; }
return [await get("x"), await get(2)];
// ---- abstract classes and interfaces
interface Check { run(): Promise<boolean> }
abstract class Base implements Check { abstract run(): Promise<boolean>; }
class Healthy extends Base { async run() { return unwrap(await MCP.deploy.getService({ name: "api", environment: "staging" })).health === "healthy"; } }
return new Healthy().run();
// ---- exhaustive switch
const a = unwrap(await MCP.deploy.acknowledgeAlert({ id: "a1" }));
switch (a.severity) {
  case "critical": return 3;
  case "warning": return 2;
  case "info": return 1;
  default: { const never: never = a.severity; return never; }
}
// ---- a union by its discriminator
const p = unwrap(await MCP.payments.getPayment({ paymentId: "p" }));
if (p.method.type === "card") return p.method.expYear;
return p.method.mandateId;
// ---- a union without a question
const p = unwrap(await MCP.payments.getPayment({ paymentId: "p" }));
return p.method.last4 + (p.method.brand ?? "");
// ---- an event in a variable
const when = { kind: "timed", start: "2026-05-01T09:00:00Z", end: "2026-05-01T10:00:00Z" };
return unwrap(await MCP.calendar.createEvent({ calendarId: "primary", title: "T", when })).id;
// ---- an event as const
const when = { kind: "timed", start: "2026-05-01T09:00:00Z", end: "2026-05-01T10:00:00Z" } as const;
return unwrap(await MCP.calendar.createEvent({ calendarId: "primary", title: "T", when })).id;
// ---- weekdays of a list
const days = ["MO", "WE"];
return unwrap(await MCP.calendar.createEvent({
  calendarId: "primary", title: "T", when: { kind: "timed", start: "2026-05-01T09:00:00Z", end: "2026-05-01T10:00:00Z" },
  recurrence: { frequency: "weekly", byWeekday: days },
})).id;
// ---- a date for text
const timeMin = new Date("2026-03-01T00:00:00Z"), timeMax = new Date("2026-03-08T00:00:00Z");
return unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin, timeMax })).events.length;
// ---- allSettled by a guard
const settled = await Promise.allSettled([MCP.issues.getMe({})]);
const fulfilled = settled.filter((s): s is PromiseFulfilledResult<any> => s.status === "fulfilled");
return fulfilled.map((s) => unwrap(s.value)).length;
// ---- allSettled without a guard
const settled = await Promise.allSettled([MCP.issues.getMe({})]);
return settled.map((s) => (s as any).value?.structuredContent.login);
// ---- dynamic names
const server: string = "issues", tool: string = "getMe";
return unwrap(await MCP[server][tool]({})).login;
// ---- dynamic names by keyof
const tool: keyof typeof MCP.issues = "getMe";
return unwrap(await MCP.issues[tool]({})).login;
// ---- dynamic names by a cast
const tool = "getMe";
return unwrap(await (MCP as any).issues[tool]({})).login;
// ---- the original name
return unwrap(await MCP.issues.get_me({})).login;
// ---- a field that is not declared, with care
const issue = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 }));
return issue.assignee?.login ?? "none";
// ---- a field that is not declared, by a cast
const issue = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 }));
return (issue as any).reactions?.total ?? 0;
// ---- names for the items
const r = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const list = r.issues ?? r.items;
return list.length;
// ---- rows as records
type Order = { id: number; total: number };
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT id, total FROM orders" }));
return (rows as Order[]).filter((o) => o.total > 10).length;
// ---- rows without types
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT id, total FROM orders" }));
return rows.map((row) => row.key1.label);
// ---- rows in arithmetic
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT id, total FROM orders" }));
let sum = 0;
for (const row of rows) sum += row.key2;
return sum;
// ---- a stored value
store("k", { n: 1 });
const saved = await load("k");
return saved.n;
// ---- a stored value with a type
store("k", { n: 1 });
const saved = (await load("k")) as { n: number } | undefined;
return saved?.n ?? 0;
// ---- JSON.parse with a type
const parsed: { a: number[] } = JSON.parse('{"a":[1]}');
return parsed.a.length;
// ---- non-null assertions
const { folders } = unwrap(await MCP.mail.listFolders());
return folders.find((f) => f.role === "inbox")!.unreadCount;
// ---- find without an assertion
const { folders } = unwrap(await MCP.mail.listFolders());
return folders.find((f) => f.role === "inbox").unreadCount;
// ---- a Map of lists
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
const by = new Map<string, string[]>();
for (const a of alerts) by.set(a.severity, [...(by.get(a.severity) ?? []), a.summary]);
return Object.fromEntries(by);
// ---- a type guard
interface Down { name: string; health: "down" }
const { services } = unwrap(await MCP.deploy.listServices({}));
const down = services.filter((s): s is typeof s & Down => s.health === "down");
return down.map((s) => s.name);
// ---- optional parameters
const list = async (project: string, state?: "open" | "closed") => unwrap(await MCP.issues.listIssues({ project, state })).items.length;
return [await list("a/b"), await list("a/b", "open")];
// ---- promises with types
const jobs: Promise<McpToolResult>[] = [];
for (const path of ["/a", "/b"]) jobs.push(MCP.files.readTextFile({ path }));
return (await Promise.all(jobs)).map((r) => unwrap<any>(r).length);
// ---- promises of tools with different results
const jobs: Promise<unknown>[] = [MCP.issues.getMe({}), MCP.deploy.listAlerts({})];
return (await Promise.all(jobs)).length;
// ---- a void function
const notify = async (text: string): Promise<void> => {
  await MCP.chat.chatPostMessage({ channel: "C1", text });
};
await notify("done");
return "ok";
// ---- a namespace and declare
declare const somewhere: string | undefined;
namespace Names { export const first = "a"; }
return Names.first;
// ---- decorators and accessors
const seen: string[] = [];
function log(value: any, context: ClassMethodDecoratorContext) { seen.push(String(context.name)); return value; }
class Job { @log async run() { return unwrap(await MCP.issues.getMe({})).login; } }
return [await new Job().run(), seen];
// ---- a template literal type
type Key = `${string}/${string}`;
const project: Key = "acme/web";
return unwrap(await MCP.issues.listLabels({ project })).labels.length;
// ---- numbers and texts of one variable
let id: string | number = 5;
return unwrap(await MCP.issues.getIssue({ project: "a/b", number: id })).number;
// ---- a value that is a text or a number
const ids: (string | number)[] = [1, 2];
const out: string[] = [];
for (const id of ids) out.push(unwrap(await MCP.issues.getIssue({ project: "a/b", number: id as number })).title);
return out;
// ---- a value that may be a text, without a cast
const ids: (string | number)[] = [1, 2];
return unwrap(await MCP.issues.getIssue({ project: "a/b", number: ids[0] })).number;
// ---- a parameter by default
async function run({ project = "a/b", dry = false }: { project?: string; dry?: boolean } = {}) {
  if (dry) return 0;
  return unwrap(await MCP.issues.listMilestones({ project })).items.length;
}
return run();
