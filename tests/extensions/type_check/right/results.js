// ---- text of the first block
const r = await MCP.files.readTextFile({ path: "/a.md" });
return r.content[0].text.split("\n").length;
// ---- text of all blocks
const r = await MCP.deploy.getLogs({ service: "api", environment: "staging", lines: 100 });
return r.content.map(c => c.text).join("\n");
// ---- text blocks only
const { content } = await MCP.files.readTextFile({ path: "/a.md" });
return content.filter(block => block.type === "text").map(block => block.text);
// ---- JSON in a text
const r = await MCP.files.listDirectory({ path: "/" });
const listing = JSON.parse(r.content[0].text);
return listing.entries.filter(e => e.kind === "file").map(e => e.name);
// ---- unwrap of a tool without a schema
const listing = unwrap(await MCP.files.listDirectory({ path: "/", recursive: true }));
return listing.entries.map(({ name, size }) => `${name}: ${size ?? "?"}`);
// ---- destructuring of an unknown result
const { matches, truncated } = unwrap(await MCP.files.searchText({ path: "/src", regex: "TODO" }));
return { count: matches.length, truncated };
// ---- fields of unknown items as arguments
const { matches } = unwrap(await MCP.chat.chatSearch({ query: "outage" }));
const replies = await Promise.all(matches.map(m => MCP.chat.chatGetReplies({ channel: m.channel.id, threadTs: m.ts })));
return replies.map(r => unwrap(r).messages.length);
// ---- structuredContent without a question mark
const r = await MCP.issues.listIssues({ project: "acme/web" });
return r.structuredContent.items.map(i => i.number);
// ---- structuredContent with a question mark
const r = await MCP.issues.listIssues({ project: "acme/web" });
return r.structuredContent?.items?.length ?? 0;
// ---- structuredContent or the text
const r = await MCP.chat.chatGetHistory({ channel: "C1", limit: 5 });
const data = r.structuredContent ?? JSON.parse(r.content[0].text);
return data.messages.map(m => m.text);
// ---- structuredContent of a tool without a schema
const r = await MCP.chat.chatGetChannel({ channel: "C1" });
return r.structuredContent ? r.structuredContent.members.length : "no structured content";
// ---- a result that may be text
const r = unwrap(await MCP.deploy.restartService({ name: "api", environment: "staging" }));
return typeof r === "string" ? r.trim() : r.status;
// ---- a result that may be JSON text
let r = unwrap(await MCP.chat.chatFindUserByEmail({ email: "ada@example.com" }));
if (typeof r === "string") r = JSON.parse(r);
return r.handle;
// ---- a declared result that is checked for text
const r = unwrap(await MCP.issues.listLabels({ project: "acme/web" }));
const parsed = typeof r === "string" ? JSON.parse(r) : r;
return parsed.labels.length;
// ---- a list or an object with a list
const r = unwrap(await MCP.deploy.listServices({}));
const services = Array.isArray(r) ? r : r.services;
return services.map(s => s.name);
// ---- one of several names for the items
const r = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
const list = r.issues ?? r.data ?? r.items ?? [];
return list.length;
// ---- or between names for the items
const r = unwrap(await MCP.payments.listCustomers({ limit: 3 }));
const list = r.customers || r.data || [];
return list.map(c => c.email);
// ---- destructuring with defaults
const { data = [], items = data } = unwrap(await MCP.payments.listInvoices({}));
return items.length;
// ---- a field that is asked for
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
if (issue.pullRequest) return "a pull request";
return issue.title;
// ---- a field that is asked for by in
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return "locked" in issue ? issue.locked : false;
// ---- a field by optional chaining
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return issue.assignee?.login ?? issue.assignees[0]?.login ?? "unassigned";
// ---- a field that is negated
const pr = unwrap(await MCP.issues.getPullRequest({ project: "acme/web", number: 1 }));
return !pr.locked && !pr.draft;
// ---- a field in a condition
const s = unwrap(await MCP.deploy.getService({ name: "api", environment: "staging" }));
return s.paused ? "paused" : s.health;
// ---- a field whose type is asked for
const m = unwrap(await MCP.mail.getMessage({ messageId: "m1" }));
const body = typeof m.text === "string" ? m.text : m.body.text;
return body.length;
// ---- hasOwn before a field
const c = unwrap(await MCP.payments.getCustomer({ customerId: "cus_1" }));
return Object.hasOwn(c, "phone") ? c["phone"] : c.email;
// ---- optional fields without care
const { labels } = unwrap(await MCP.issues.listLabels({ project: "acme/web" }));
return labels.filter(l => l.description).map(l => l.description.toUpperCase());
// ---- optional fields with care
const { users } = unwrap(await MCP.chat.chatListUsers({}));
return users.map(u => u.profile?.title?.toLowerCase() ?? "none");
// ---- a nullable member with care
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 4 }));
return issue.milestone && issue.milestone.title;
// ---- a nullable member without care
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 4 }));
return issue.milestone.title;
// ---- a member of one kind of a union
const p = unwrap(await MCP.payments.getPayment({ paymentId: "pay_1" }));
return p.method.brand ?? p.method.mandateId;
// ---- a union by its discriminator
const { data } = unwrap(await MCP.payments.listPayments({ limit: 5 }));
return data.map(p => p.method.type === "card" ? p.method.brand : p.method.country);
// ---- a union by in
const { events } = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-08T00:00:00Z" }));
return events.map(e => "start" in e.when ? e.when.start : e.when.startDate);
// ---- a union without a question
const { events } = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-08T00:00:00Z" }));
return events.map(e => e.when.start || e.when.startDate);
// ---- a union in a template string
const d = unwrap(await MCP.deploy.getDeployment({ id: "d1" }));
return `${d.version} by ${d.startedBy.login || d.startedBy.cron}`;
// ---- rows with any names
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT id, total FROM orders" }));
return rows.map(row => row.total ?? row.key2);
// ---- rows in a sum
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT total FROM orders" }));
return rows.reduce((sum, row) => sum + Number(row.total ?? 0), 0);
// ---- rows compared and added
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT n FROM t" }));
let n = 0;
for (const row of rows) if (row.key2 > 1) n += row.key2;
return n;
// ---- rows sorted by an unknown member
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT * FROM t" }));
rows.sort((a, b) => b.key2 - a.key2);
return rows[0].key2;
// ---- a map by its keys
const free = unwrap(await MCP.calendar.getFreeBusy({ calendarIds: ["a"], timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-02T00:00:00Z" }));
return Object.entries(free.calendars).map(([id, c]) => [id, c.busy.length]);
// ---- a map by a name
const free = unwrap(await MCP.calendar.getFreeBusy({ calendarIds: ["a"], timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-02T00:00:00Z" }));
return free.calendars["key1"].busy[0].start;
// ---- a map by a property
const m = unwrap(await MCP.mail.getMessage({ messageId: "m1" }));
return m.headers.key1 ?? m.headers["Message-ID"];
// ---- a recursive result
const { root } = unwrap(await MCP.payments.listCategories());
const names = [];
const visit = node => { names.push(node.name); node.children.forEach(visit); };
visit(root);
return names.length;
// ---- a tree of unknown children
const { tree } = unwrap(await MCP.files.directoryTree({ path: "/" }));
function count(node) { return 1 + (node.children ?? []).reduce((n, child) => n + count(child), 0); }
return count(tree);
// ---- unknown children by their fields
const { tree } = unwrap(await MCP.files.directoryTree({ path: "/" }));
return tree.children?.map(c => c.label ?? c);
// ---- wrapped in result
const { result } = unwrap(await MCP.database.listTables({ database: "shop" }));
return result.filter(t => t.kind === "table").map(t => t.name);
// ---- wrapped in result, or not
const r = unwrap(await MCP.database.listDatabases());
const names = r.result || r;
return names.join(", ");
// ---- JSON of a result
const r = await MCP.issues.getMe();
return JSON.parse(JSON.stringify(r.structuredContent)).login;
// ---- JSON.stringify of any result
const r = await MCP.mail.getAttachment({ messageId: "m1", attachmentId: "a1" });
return JSON.stringify(r, null, 2).length;
// ---- spread of a result
const me = unwrap(await MCP.issues.getMe({}));
return { ...me, seen: true };
// ---- a result that is changed
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
issue.age = 3;
issue.labels = issue.labels.map(l => l.name);
return issue;
// ---- a result that grows in a loop
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
for (const issue of items) {
  issue.commentList = unwrap(await MCP.issues.listComments({ project: "acme/web", number: issue.number })).items;
}
return items.map(i => i.commentList.length);
// ---- delete of a member
const m = unwrap(await MCP.mail.getMessage({ messageId: "m1" }));
delete m.headers;
return Object.keys(m).length;
// ---- a score in a list of pairs
const { items } = unwrap(await MCP.issues.searchIssues({ query: "crash", in: ["title", "body"] }));
return items.map(({ issue: { number, title }, score }) => ({ number, title, score }));
// ---- numbers of texts
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.map(d => +d.version.replace(/\D/g, "") * 2);
// ---- dates that are subtracted
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
return deployments.map(d => new Date(d.finishedAt) - new Date(d.createdAt));
// ---- dates that sort
const { messages } = unwrap(await MCP.mail.searchMessages({ query: "x" }));
messages.sort((a, b) => new Date(b.date) - new Date(a.date));
return messages[0].subject;
// ---- sort by a boolean
const { messages } = unwrap(await MCP.mail.searchMessages({ query: "x" }));
return messages.sort((a, b) => b.unread - a.unread).map(m => m.id);
// ---- length of what may be null
const { points } = unwrap(await MCP.deploy.queryMetrics({ service: "api", metric: "cpu", from: "2026-03-01T00:00:00Z", to: "2026-03-02T00:00:00Z" }));
return Math.max(...points.map(p => p.value));
// ---- a sum over what may be null
const { points } = unwrap(await MCP.deploy.queryMetrics({ service: "api", metric: "cpu", from: "2026-03-01T00:00:00Z", to: "2026-03-02T00:00:00Z" }));
return points.reduce((sum, p) => sum + p.value, 0);
// ---- the metadata of a result
const r = await MCP.issues.getMe({});
return [r._meta, r.isError, Object.keys(r).length > 0];
// ---- a nested helper for results
const get = (r) => r.structuredContent ?? JSON.parse(r.content.find(c => c.type === "text").text);
return [get(await MCP.issues.getMe({})).login, get(await MCP.chat.chatGetUser({ user: "U1" })).handle];
// ---- a helper that reads what is there
const pick = (o, ...names) => names.map(n => o[n]).find(v => v !== undefined);
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return pick(issue, "headline", "title");
