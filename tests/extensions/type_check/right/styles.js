// ---- a careful helper for any shape
function extractList(res, ...keys) {
  const data = res?.structuredContent ?? res?.data ?? res;
  if (Array.isArray(data)) return data;
  for (const key of keys) if (Array.isArray(data?.[key])) return data[key];
  return [];
}
const res = await MCP.issues.listIssues({ project: "acme/web" });
return extractList(res, "items", "issues").map(i => i.number);
// ---- a careful helper around a call
async function callTool(server, tool, input = {}) {
  try {
    const res = await MCP[server][tool](input);
    if (res.isError) return { ok: false, error: res.content?.map(c => c.text).join(" ") };
    return { ok: true, data: unwrap(res) };
  } catch (err) {
    return { ok: false, error: err?.message || String(err) };
  }
}
const out = await callTool("issues", "listLabels", { project: "acme/web" });
return out.ok ? out.data.labels.length : out.error;
// ---- several shapes in one expression
const raw = unwrap(await MCP.deploy.listAlerts({ severity: "critical" }));
const alerts = Array.isArray(raw) ? raw : Array.isArray(raw?.alerts) ? raw.alerts : raw?.items || [];
return alerts.map(a => a.summary || a.title || a.message || "no summary");
// ---- names in two styles
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
return items.map(i => ({ id: i.number ?? i.id, at: i.createdAt ?? i.created_at, by: (i.author || i.user).login }));
// ---- names in two styles by logical or in a condition
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
return items.filter(i => (i.closed_at || i.closedAt) == null).length;
// ---- a member by a key that may not be there
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return ["title", "priority", "severity"].map(k => issue[k] ?? null);
// ---- a literal key in brackets
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return issue["title"];
// ---- comparison with undefined
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return issue.priority === undefined ? "no priority" : issue.priority;
// ---- comparison with null
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
if (issue.locked != null) return issue.locked;
return "unknown";
// ---- typeof before a method
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return typeof issue.toMarkdown === "function" ? issue.toMarkdown() : issue.title;
// ---- Boolean around a field
const { projects } = unwrap(await MCP.issues.listProjects({}));
return projects.filter(p => Boolean(p.fork) === false).length;
// ---- double negation
const { channels } = unwrap(await MCP.chat.chatListChannels({}));
return channels.map(c => !!c.is_archived || c.isArchived);
// ---- String around a field
const { services } = unwrap(await MCP.deploy.listServices({}));
return services.map(s => String(s.version ?? s.image.tag));
// ---- fields of an object of one's own
const { services } = unwrap(await MCP.deploy.listServices({}));
const view = services.map(s => ({ ...s, short: s.name.slice(0, 3) }));
return view.map(v => v.short + v.health);
// ---- a list that changes its type
let items = unwrap(await MCP.issues.listIssues({ project: "acme/web" })).items;
items = items.map(i => i.title);
items = items.join(", ");
return items;
// ---- a variable that is a result and then its value
let r = await MCP.issues.listIssues({ project: "acme/web" });
r = unwrap(r);
r = r.items;
return r.length;
// ---- a variable of two tools
let page = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
const first = page.items.length;
page = unwrap(await MCP.issues.listPullRequests({ project: "acme/web" }));
return [first, page.items[0].draft];
// ---- a variable that is set in branches
let data;
if (args.length) data = unwrap(await MCP.issues.listIssues({ project: args[0] })).items;
else data = unwrap(await MCP.deploy.listServices({})).services;
return data.map(d => d.name ?? d.title);
// ---- a variable that is set in try
let service = null;
try {
  service = unwrap(await MCP.deploy.getService({ name: "api", environment: "production" }));
} catch (e) {
  console.warn(e.message);
}
return service ? service.health : "unknown";
// ---- a variable that is set in a callback
let found;
const { folders } = unwrap(await MCP.mail.listFolders());
folders.forEach(f => { if (f.role === "inbox") found = f; });
return found.name;
// ---- a list that starts empty
let all = [];
for (const state of ["open", "closed"]) all = all.concat(unwrap(await MCP.issues.listIssues({ project: "a/b", state })).items);
return all.map(i => i.title).length;
// ---- a list that starts with null
let best = null;
for (const s of unwrap(await MCP.deploy.listServices({})).services) if (!best || s.replicas.ready > best.replicas.ready) best = s;
return best.name;
// ---- a number that starts as null
let max = null;
for (const p of unwrap(await MCP.payments.listPayments({})).data) if (max === null || p.money.amount > max) max = p.money.amount;
return max;
// ---- an object that starts as null
let last = null;
const seen = unwrap(await MCP.issues.listComments({ project: "a/b", number: 1 })).items;
for (const c of seen) last = { id: c.id, by: c.author.login };
return last.by;
// ---- sums with plus and strings
const { data } = unwrap(await MCP.payments.listInvoices({}));
return data.reduce((text, i) => text + i.number + ": " + i.total.amount / 100 + " " + i.total.currency + "\n", "");
// ---- numbers from toFixed
const { data } = unwrap(await MCP.payments.listPayments({}));
const total = data.reduce((sum, p) => sum + (p.money.amount / 100).toFixed(2) * 1, 0);
return total;
// ---- parseFloat of a number
const { data } = unwrap(await MCP.payments.listPayments({}));
return parseFloat(data[0].money.amount) + parseInt(data[0].money.amount, 10);
// ---- isNaN of a text
return isNaN("x") && !isFinite("y");
// ---- Math.max over texts
return Math.max("3", "12");
// ---- Object.keys of a list
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
return Object.keys(items).length;
// ---- in over keys of a list
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const titles = [];
for (const i in items) titles.push(items[i].title);
return titles;
// ---- includes of another type
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const wanted = ["bug", "urgent"];
return items.filter(i => i.labels.some(l => wanted.includes(l.name))).length;
// ---- includes of a wider value
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.filter(d => ["failed", "rolled_back", "error"].includes(d.status)).length;
// ---- a status in a Set
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
const bad = new Set(["failed", "rolled_back"]);
return deployments.filter(d => bad.has(d.status)).length;
// ---- a status by a table
const ICONS = { critical: "🔴", warning: "🟡", info: "🔵", unknown: "⚪" };
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return alerts.map(a => `${ICONS[a.severity] || ICONS.unknown} ${a.summary}`);
// ---- an order of severities
const order = ["critical", "warning", "info"];
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return alerts.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity)).map(a => a.id);
// ---- lower case before a comparison
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return alerts.filter(a => a.severity.toLowerCase() === "critical" || a.severity.toUpperCase() === "WARNING").length;
// ---- a status compared with what may come later
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.filter(d => d.status != "succeeded").length;
// ---- a date by parts
const { events } = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-08T00:00:00Z" }));
return events.map(({ when }) => (when.start ?? when.startDate).slice(0, 10).split("-").map(Number));
// ---- destructuring of a union
const { events } = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-08T00:00:00Z" }));
return events.map(({ when: { start, startDate } }) => start || startDate);
// ---- destructuring of a union in a loop
for (const { method: { type, last4, brand } } of unwrap(await MCP.payments.listPayments({})).data) text(`${brand || type} ${last4}`);
return "ok";
// ---- destructuring with a field that is only printed if there
const { title, milestone, priority = "none" } = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 }));
return [title, milestone?.title, priority];
// ---- rest of a result
const { body, ...rest } = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 }));
return Object.keys(rest).length;
// ---- swapped variables
let a = 1, b = "two";
[a, b] = [b, a];
return [a, b];
// ---- a cache in a closure
const cached = (f) => { const seen = {}; return async (k) => seen[k] ??= await f(k); };
const user = cached(async (user) => unwrap(await MCP.chat.chatGetUser({ user })));
return [(await user("U1")).handle, (await user("U1")).profile.timeZone];
// ---- pipe and compose
const pipe = (...fs) => (x) => fs.reduce((v, f) => f(v), x);
const titles = pipe(r => r.items, items => items.map(i => i.title), list => list.join());
return titles(unwrap(await MCP.issues.listIssues({ project: "a/b" })));
// ---- curried calls
const on = (server) => (tool) => (input) => MCP[server][tool](input);
return unwrap(await on("issues")("getMe")({})).login;
// ---- sleep
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
await sleep(1);
return "ok";
// ---- a rate limit
const queue = [1, 2, 3];
let active = 0, done = [];
await new Promise((resolve) => {
  const next = () => {
    if (!queue.length && !active) return resolve();
    while (active < 2 && queue.length) {
      const number = queue.shift();
      active++;
      MCP.issues.getIssue({ project: "a/b", number }).then(r => done.push(unwrap(r).number)).finally(() => { active--; next(); });
    }
  };
  next();
});
return done.length;
// ---- events by callbacks
const handlers = {};
const on = (name, f) => (handlers[name] ||= []).push(f);
on("issue", i => text(i.title));
for (const i of unwrap(await MCP.issues.listIssues({ project: "a/b" })).items) handlers.issue.forEach(f => f(i));
return "ok";
// ---- promises in a map that are awaited by entries
const jobs = new Map();
for (const name of ["api", "web"]) jobs.set(name, MCP.deploy.getService({ name, environment: "staging" }));
const health = {};
for (const [name, job] of jobs) health[name] = unwrap(await job).health;
return health;
// ---- promises that are awaited by name
const me = MCP.issues.getMe({}), folders = MCP.mail.listFolders();
const [a, b] = [await me, await folders];
return [unwrap(a).login, unwrap(b).folders.length];
// ---- promises by Object.values
const jobs = { me: MCP.issues.getMe({}), labels: MCP.issues.listLabels({ project: "a/b" }) };
const [me, labels] = await Promise.all(Object.values(jobs));
return [unwrap(me).login, unwrap(labels).labels.length];
// ---- Promise.all over objects
const numbers = [1, 2];
const out = await Promise.all(numbers.map(async n => ({ n, issue: unwrap(await MCP.issues.getIssue({ project: "a/b", number: n })) })));
return out.map(({ n, issue }) => `${n}: ${issue.title}`);
// ---- Promise.all with a value that is no promise
const [me, n] = await Promise.all([MCP.issues.getMe({}), 5]);
return [unwrap(me).login, n];
// ---- Promise.all with a condition
const [issue, comments] = await Promise.all([
  MCP.issues.getIssue({ project: "a/b", number: 1 }),
  args.includes("--comments") ? MCP.issues.listComments({ project: "a/b", number: 1 }) : null,
]);
return [unwrap(issue).title, comments && unwrap(comments).items.length];
// ---- Promise.all with catch
const results = await Promise.all(["a/b", "missing"].map(project => MCP.issues.listLabels({ project }).catch(e => ({ error: e.message }))));
return results.map(r => r.error ?? (r.isError ? "failed" : unwrap(r).labels.length));
// ---- then with two functions
return await MCP.issues.getMe({}).then(r => unwrap(r).login, e => e.message);
// ---- a call whose result is not needed
await MCP.chat.chatPostMessage({ channel: "C1", text: "starting" });
await MCP.files.appendFile({ path: "/log", content: "started\n" });
return "ok";
// ---- void as a value
const done = await Promise.all([1, 2].map(async number => { await MCP.issues.addComment({ project: "a/b", number, body: "ping" }); }));
return done.length;
// ---- an async callback in sort order
const numbers = [3, 1, 2];
const issues = await Promise.all(numbers.map(number => MCP.issues.getIssue({ project: "a/b", number }).then(unwrap)));
return issues.sort((a, b) => a.number - b.number).map(i => i.number);
// ---- an argument by name and by shorthand
const project = "a/b", title = "T", labels = ["x"], body = `# ${title}\n`;
return unwrap(await MCP.issues.createIssue({ project, title, labels, body })).number;
// ---- arguments of a list of objects
const todo = [{ title: "A", labels: ["x"] }, { title: "B" }];
const made = [];
for (const t of todo) made.push(unwrap(await MCP.issues.createIssue({ project: "a/b", ...t })).number);
return made;
// ---- arguments of a list with other members
const todo = [{ title: "A", priority: 1 }, { title: "B", priority: 2 }];
const made = await Promise.all(todo.filter(t => t.priority < 2).map(({ title }) => MCP.issues.createIssue({ project: "a/b", title })));
return made.length;
// ---- arguments by a table of functions
const actions = {
  close: (number) => MCP.issues.closeIssue({ project: "a/b", number, reason: "completed" }),
  label: (number) => MCP.issues.addLabels({ project: "a/b", number, labels: ["triaged"] }),
};
for (const [number, action] of [[1, "close"], [2, "label"]]) unwrap(await actions[action](number));
return "ok";
// ---- a reason by a condition
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const r = await Promise.all(items.map(i => MCP.issues.closeIssue({ project: "a/b", number: i.number, reason: i.comments > 1 ? "completed" : "not_planned" })));
return r.length;
// ---- a reason by a function
const reasonFor = (i) => { if (i.comments > 1) return "completed"; return "not_planned"; };
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
return unwrap(await MCP.issues.closeIssue({ project: "a/b", number: items[0].number, reason: reasonFor(items[0]) })).state;
// ---- money by a function
const eur = (amount) => ({ amount: Math.round(amount * 100), currency: "eur" });
return unwrap(await MCP.payments.createPayment({ customerId: "c", money: eur(12.5), idempotencyKey: `k-${Date.now()}` })).id;
// ---- money of a result
const { data: [p] } = unwrap(await MCP.payments.listPayments({ limit: 1 }));
return unwrap(await MCP.payments.createPayment({ customerId: p.customerId || "c", money: p.money, idempotencyKey: p.id })).status;
// ---- lines of results
const { data } = unwrap(await MCP.payments.listInvoices({}));
const lines = data.flatMap(i => i.lines).map(l => ({ ...l, quantity: l.quantity + 1 }));
return unwrap(await MCP.payments.createInvoice({ customerId: "c", lines })).status;
// ---- an address that is built
const address = { line1: "Main St 1", city: "Bern", postalCode: String(3000), country: "CH" };
if (args[0]) address.line2 = args[0];
return unwrap(await MCP.payments.createCustomer({ email: "a@example.com", name: "A", address, metadata: { source: "import", n: `${1}` } })).id;
// ---- metadata by entries
const metadata = Object.fromEntries(Object.entries({ a: 1, b: true }).map(([k, v]) => [k, String(v)]));
return unwrap(await MCP.payments.updateCustomer({ customerId: "c", metadata })).id;
// ---- a strategy by a condition
const strategy = args.includes("--canary") ? { type: "canary", percent: 10, minutes: 5 } : { type: "rolling" };
return unwrap(await MCP.deploy.startDeployment({ service: "api", environment: "staging", version: "1", strategy })).status;
// ---- variables of a deployment
const variables = {};
for (const line of "A=1\nB=2".split("\n")) { const [k, v] = line.split("="); variables[k] = v; }
return unwrap(await MCP.deploy.startDeployment({ service: "api", environment: "staging", version: "1", variables })).id;
// ---- recurrence that is built
const recurrence = { frequency: "weekly", interval: 1 };
recurrence.byWeekday = ["MO", "WE"];
return unwrap(await MCP.calendar.createEvent({ calendarId: "p", title: "T", when: { kind: "allDay", startDate: "2026-05-01", endDate: "2026-05-02" }, recurrence })).id;
// ---- changes that are built
const changes = {};
if (!args.length) changes.title = "New title";
changes.description = null;
return unwrap(await MCP.calendar.updateEvent({ calendarId: "p", eventId: "e", changes })).title;
// ---- edits of a list
const edits = [["foo", "bar"], ["baz", "qux"]].map(([oldText, newText]) => ({ oldText, newText }));
return unwrap(await MCP.files.editFile({ path: "/a", edits }));
// ---- statements of a loop
const statements = [];
for (const id of [1, 2]) statements.push({ sql: "UPDATE t SET x = 1 WHERE id = $1", params: [id] });
return unwrap(await MCP.database.runTransaction({ database: "shop", statements })).committed;
// ---- parameters of rows
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT 1" }));
return unwrap(await MCP.database.execute({ database: "shop", sql: "INSERT INTO t VALUES ($1)", params: rows.map(r => r.key2) })).affectedRows;
// ---- a destination
const destination = { kind: "file", path: "/out.csv" };
return unwrap(await MCP.database.exportTable({ database: "shop", table: "t", format: "csv", destination })).location;
// ---- comments on lines
const comments = [{ path: "a.ts", line: 3, body: "typo", side: "right" }];
return unwrap(await MCP.issues.submitReview({ project: "a/b", number: 1, verdict: comments.length ? "changes_requested" : "approved", comments })).verdict;
// ---- a filter that is built
const filter = { unread: true };
const since = "2026-03-01";
if (since) filter.after = since;
return unwrap(await MCP.mail.searchMessages({ filter })).messages.length;
