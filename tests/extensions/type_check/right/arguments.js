// ---- a state in a variable
let state = "open";
const r = await MCP.issues.listIssues({ project: "acme/web", state });
return unwrap(r).items.length;
// ---- a state in a constant
const state = "closed";
return unwrap(await MCP.issues.listIssues({ project: "acme/web", state })).items.length;
// ---- states of a loop
const counts = {};
for (const state of ["open", "closed", "all"]) {
  counts[state] = unwrap(await MCP.issues.listIssues({ project: "acme/web", state })).page.total;
}
return counts;
// ---- environments of a map
const all = await Promise.all(["staging", "production"].map(environment => MCP.deploy.listServices({ environment })));
return all.map(r => unwrap(r).services.length);
// ---- arguments in a variable
const query = { project: "acme/web", state: "open", sort: "updated", direction: "desc" };
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments of an object that grows
const query = {};
query.project = "acme/web";
query.state = "open";
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments that grow by a condition
const query = { project: "acme/web" };
const label = "bug";
if (label) query.labels = [label];
return unwrap(await MCP.issues.listIssues(query)).items.length;
// ---- arguments that grow in let
let input = { project: "acme/web", title: "A" };
input.body = "text";
input = { ...input, labels: ["bug"] };
return unwrap(await MCP.issues.createIssue(input)).number;
// ---- arguments by Object.assign
const base = { project: "acme/web" };
return unwrap(await MCP.issues.getIssue(Object.assign({}, base, { number: 3 }))).title;
// ---- arguments by spread
const base = { project: "acme/web" };
const more = { state: "closed" };
return unwrap(await MCP.issues.updateIssue({ ...base, number: 3, ...more })).state;
// ---- arguments by a conditional spread
const cursor = undefined;
const r = await MCP.issues.listIssues({ project: "acme/web", ...(cursor && { cursor }) });
return unwrap(r).items.length;
// ---- arguments by a conditional spread of objects
const cursor = "c2";
const r = await MCP.issues.listIssues({ project: "acme/web", ...(cursor ? { cursor } : {}) });
return unwrap(r).items.length;
// ---- arguments of entries
const input = Object.fromEntries([["project", "acme/web"], ["number", 2]]);
return unwrap(await MCP.issues.getIssue(input)).number;
// ---- arguments of JSON
const input = JSON.parse('{"project": "acme/web", "number": 2}');
return unwrap(await MCP.issues.getIssue(input)).number;
// ---- arguments with computed names
const key = "project";
return unwrap(await MCP.issues.getIssue({ [key]: "acme/web", number: 2 })).number;
// ---- arguments of what was stored
store("last", { project: "acme/web", number: 5 });
const last = await load("last");
return unwrap(await MCP.issues.getIssue({ project: last.project, number: last.number })).number;
// ---- the whole stored value
store("last", { project: "acme/web", number: 5 });
return unwrap(await MCP.issues.getIssue(await load("last"))).number;
// ---- a date for text
const until = new Date("2026-03-08T00:00:00Z");
const r = unwrap(await MCP.calendar.listEvents({ calendarId: "primary", timeMin: new Date("2026-03-01T00:00:00Z"), timeMax: until }));
return r.events.length;
// ---- toISOString
const from = new Date(2026, 2, 1).toISOString(), to = new Date(2026, 2, 2).toISOString();
return unwrap(await MCP.calendar.getFreeBusy({ calendarIds: ["primary"], timeMin: from, timeMax: to })).calendars;
// ---- a number of a text
const [, number] = "Fixes #12".match(/#(\d+)/);
return unwrap(await MCP.issues.getIssue({ project: "acme/web", number: Number(number) })).number;
// ---- a number by parseInt and plus
const m = "PR 7 of 9".match(/(\d+) of (\d+)/);
return [unwrap(await MCP.issues.getPullRequest({ project: "a/b", number: parseInt(m[1]) })).number, +m[2]];
// ---- a value of a Map
const numbers = new Map([["login", 4], ["checkout", 9]]);
return unwrap(await MCP.issues.getIssue({ project: "acme/web", number: numbers.get("checkout") })).number;
// ---- the last of a list
const ids = ["m1", "m2"];
return unwrap(await MCP.mail.getMessage({ messageId: ids.at(-1) })).subject;
// ---- pop and shift
const queue = ["m1", "m2", "m3"];
const subjects = [];
while (queue.length) subjects.push(unwrap(await MCP.mail.getMessage({ messageId: queue.shift() })).subject);
return subjects;
// ---- what find gives
const { folders } = unwrap(await MCP.mail.listFolders());
const inbox = folders.find(f => f.role === "inbox");
return unwrap(await MCP.mail.moveMessages({ messageIds: ["m1"], folder: inbox.id })).moved;
// ---- an optional field as a required argument
const { users } = unwrap(await MCP.chat.chatListUsers({ limit: 200 }));
const found = [];
for (const user of users.filter(u => u.email)) found.push(unwrap(await MCP.chat.chatFindUserByEmail({ email: user.email })).id);
return found;
// ---- a nullable field as a required argument
const p = unwrap(await MCP.payments.getPayment({ paymentId: "pay_1" }));
return unwrap(await MCP.payments.getCustomer({ customerId: p.customerId })).email;
// ---- undefined for an optional argument
const cursor = undefined;
return unwrap(await MCP.issues.listIssues({ project: "acme/web", cursor, labels: undefined })).items.length;
// ---- null where it is allowed
return unwrap(await MCP.issues.updateIssue({ project: "acme/web", number: 1, milestone: null })).milestone !== undefined;
// ---- pages by a cursor
let cursor, pages = 0, all = [];
do {
  const { items, page } = unwrap(await MCP.issues.listIssues({ project: "acme/web", cursor }));
  all.push(...items);
  cursor = page.nextCursor;
} while (cursor && ++pages < 3);
return all.length;
// ---- pages by null
let pageToken = null, n = 0;
for (let i = 0; i < 3; i++) {
  const page = unwrap(await MCP.mail.searchMessages(pageToken ? { query: "a", pageToken } : { query: "a" }));
  n += page.messages.length;
  pageToken = page.nextPageToken;
  if (!pageToken) break;
}
return n;
// ---- a union in a variable
const when = { kind: "allDay", startDate: "2026-05-01", endDate: "2026-05-02" };
return unwrap(await MCP.calendar.createEvent({ calendarId: "primary", title: "Day off", when })).id;
// ---- a union by a function
const timed = (start, end) => ({ kind: "timed", start, end });
return unwrap(await MCP.calendar.createEvent({ calendarId: "primary", title: "T", when: timed("2026-05-01T09:00:00Z", "2026-05-01T10:00:00Z") })).id;
// ---- a union by a condition
const allDay = true;
const when = allDay
  ? { kind: "allDay", startDate: "2026-05-01", endDate: "2026-05-02" }
  : { kind: "timed", start: "2026-05-01T09:00:00Z", end: "2026-05-01T10:00:00Z" };
return unwrap(await MCP.calendar.createEvent({ calendarId: "primary", title: "T", when })).id;
// ---- addresses of two kinds
const to = ["ada@example.com", { email: "bo@example.com", name: "Bo" }];
return unwrap(await MCP.mail.sendMessage({ to, subject: "Hi", body: { text: "x" } })).messageId;
// ---- addresses of a result
const m = unwrap(await MCP.mail.getMessage({ messageId: "m1" }));
return unwrap(await MCP.mail.sendMessage({ to: [m.from, ...m.to], cc: m.cc, subject: `Re: ${m.subject}`, body: m.body })).messageId;
// ---- blocks of several kinds
const blocks = [{ type: "section", text: "Deployed" }, { type: "divider" }];
blocks.push({ type: "image", url: "https://example.com/a.png", alt: "graph" });
return unwrap(await MCP.chat.chatPostMessage({ channel: "C1", text: "Deployed", blocks })).ok;
// ---- blocks in place
return unwrap(await MCP.chat.chatPostMessage({
  channel: "C1",
  text: "Deploy?",
  blocks: [{ type: "actions", buttons: [{ label: "Yes", value: "y", style: "primary" }, { label: "No", value: "n" }] }],
})).ts;
// ---- lines of an invoice
const lines = [["Hosting", 2, 1500], ["Support", 1, 9900]].map(([description, quantity, amount]) => ({
  description, quantity, unitPrice: { amount, currency: "eur" },
}));
return unwrap(await MCP.payments.createInvoice({ customerId: "cus_1", lines })).number;
// ---- parameters of several types
return unwrap(await MCP.database.query({ database: "shop", sql: "SELECT $1, $2, $3, $4", params: ["x", 1, true, null] })).rowCount;
// ---- a text or a number
return [unwrap(await MCP.files.setPermissions({ path: "/a", mode: "644" })), unwrap(await MCP.files.setPermissions({ path: "/a", mode: 0o644 }))].length;
// ---- projections and sorting
const r = await MCP.database.findDocuments({ collection: "users", filter: { age: { $gt: 30 } }, projection: { name: 1, _id: 0 }, sort: { name: -1 } });
return unwrap(r).documents.length;
// ---- sorting in a variable
const sort = { created: -1 }, projection = { name: 1 };
return unwrap(await MCP.database.findDocuments({ collection: "users", projection, sort })).documents.length;
// ---- a pipeline
const pipeline = [{ $match: { state: "open" } }, { $group: { _id: "$owner", n: { $sum: 1 } } }];
const groups = unwrap(await MCP.database.aggregate({ collection: "issues", pipeline }));
return groups.map(g => g.key1);
// ---- documents with dates
const documents = [{ name: "a", at: new Date(0) }, { name: "b", tags: ["x"], nested: { n: 1 } }];
return unwrap(await MCP.database.insertDocuments({ collection: "c", documents })).insertedIds;
// ---- a time limit
return unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }, { timeoutMs: 5000 })).title;
// ---- no argument where none is needed
return [unwrap(await MCP.issues.getMe()).login, unwrap(await MCP.mail.listFolders({})).folders.length, unwrap(await MCP.deploy.listServices()).services.length];
// ---- frozen values
const LABELS = Object.freeze(["bug", "urgent"]);
return unwrap(await MCP.issues.listIssues({ project: "acme/web", labels: LABELS })).items.length;
// ---- a list of a Set
const labels = new Set(["bug", "bug", "ui"]);
return unwrap(await MCP.issues.addLabels({ project: "acme/web", number: 1, labels: [...labels] })).labels.length;
// ---- labels of a result
const source = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return unwrap(await MCP.issues.createIssue({
  project: "acme/api", title: source.title, body: source.body ?? undefined, labels: source.labels.map(l => l.name), assignees: source.assignees.map(a => a.login),
})).number;
// ---- a state of a result
const issue = unwrap(await MCP.issues.getIssue({ project: "acme/web", number: 1 }));
return unwrap(await MCP.issues.updateIssue({ project: "acme/web", number: issue.number, state: issue.state === "open" ? "closed" : "open" })).state;
// ---- a state by a lookup table
const STATES = { done: "closed", todo: "open" };
return unwrap(await MCP.issues.updateIssue({ project: "acme/web", number: 1, state: STATES["done"] })).state;
// ---- a severity by toLowerCase
const { alerts } = unwrap(await MCP.deploy.listAlerts({ severity: "CRITICAL".toLowerCase() }));
return alerts.length;
// ---- a project by template string
const owner = "acme", repo = "web";
return unwrap(await MCP.issues.listLabels({ project: `${owner}/${repo}` })).labels.length;
// ---- default parameters
async function list(project = "acme/web", options = {}) {
  return unwrap(await MCP.issues.listIssues({ project, ...options })).items;
}
return (await list()).length + (await list("acme/api", { state: "closed" })).length;
// ---- parameters without types
async function comment(project, number, body) {
  return unwrap(await MCP.issues.addComment({ project, number, body })).id;
}
return [await comment("acme/web", 1, "one"), await comment("acme/web", 2, "two")];
// ---- JSDoc types
/** @param {string} project @param {number} [number] */
async function title(project, number = 1) {
  return unwrap(await MCP.issues.getIssue({ project, number })).title;
}
return title("acme/web");
// ---- arguments as rest
const call = (tool, ...rest) => tool(...rest);
return unwrap(await call(MCP.issues.getIssue, { project: "acme/web", number: 4 })).number;
// ---- nested conditions in the argument
const urgent = true, due = null;
return unwrap(await MCP.issues.createIssue({
  project: "acme/web",
  title: "T",
  labels: urgent ? ["urgent"] : undefined,
  ...(due ? { milestone: 1 } : null),
})).number;
// ---- a logical and in the argument
const labels = [];
return unwrap(await MCP.issues.listIssues({ project: "acme/web", labels: labels.length ? labels : undefined })).items.length;
