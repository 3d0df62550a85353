// ---- an object that grows
const o = {};
o.login = unwrap(await MCP.issues.getMe({})).login;
o.list = [];
o.list.push(1);
return o;
// ---- counts in an object
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const counts = {};
for (const { author } of items) counts[author.login] = (counts[author.login] || 0) + 1;
return counts;
// ---- reduce into an object
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
return items.reduce((acc, i) => { acc[i.state] = (acc[i.state] ?? 0) + 1; return acc; }, {});
// ---- reduce into an object of lists
const { users } = unwrap(await MCP.chat.chatListUsers({}));
const byBot = users.reduce((acc, u) => { (acc[u.isBot] = acc[u.isBot] || []).push(u.handle); return acc; }, {});
return Object.keys(byBot);
// ---- reduce by spread
const { data } = unwrap(await MCP.payments.listPayments({}));
return data.reduce((acc, p) => ({ ...acc, [p.money.currency]: (acc[p.money.currency] || 0) + p.money.amount }), {});
// ---- reduce into several sums
const { data } = unwrap(await MCP.payments.listPayments({}));
const sums = data.reduce((a, p) => { a.count++; a.total += p.money.amount; return a; }, { count: 0, total: 0 });
return sums.total / sums.count;
// ---- reduce without a start
const { data } = unwrap(await MCP.payments.listPayments({}));
return data.reduce((a, b) => (a.money.amount > b.money.amount ? a : b)).id;
// ---- reduce into an empty list
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
return items.reduce((names, i) => names.concat(i.labels.map(l => l.name)), []).length;
// ---- a Map of lists
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
const byStatus = new Map();
for (const d of deployments) {
  if (!byStatus.has(d.status)) byStatus.set(d.status, []);
  byStatus.get(d.status).push(d.version);
}
return [...byStatus].map(([status, versions]) => `${status}: ${versions.length}`);
// ---- a Map of counts
const words = new Map();
for (const w of unwrap(await MCP.files.readTextFile({ path: "/a" })).split(/\s+/)) words.set(w, (words.get(w) ?? 0) + 1);
return [...words.entries()].sort((a, b) => b[1] - a[1])[0][0];
// ---- a Map of a list of pairs
const { services } = unwrap(await MCP.deploy.listServices({}));
const byName = new Map(services.map(s => [s.name, s]));
return byName.get("name 1").health;
// ---- a Set
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const people = new Set(items.flatMap(i => [i.author, ...i.assignees]).map(u => u.login));
return [people.size, [...people].sort()];
// ---- Object.groupBy by hand
const groupBy = (list, key) => list.reduce((g, x) => ({ ...g, [x[key]]: [...(g[x[key]] ?? []), x] }), {});
const { alerts } = unwrap(await MCP.deploy.listAlerts({}));
return Object.entries(groupBy(alerts, "severity")).map(([k, v]) => [k, v.length]);
// ---- sums by entries
const totals = { a: 1, b: 2 };
return Object.entries(totals).sort((x, y) => y[1] - x[1]).map(([k]) => k);
// ---- groups of a regular expression
const log = unwrap(await MCP.deploy.getLogs({ service: "api", environment: "staging" }));
const m = log.match(/(?<date>\d{4}-\d\d-\d\d) (?<level>\w+)/);
return m.groups.level;
// ---- groups by destructuring
const { groups: { year, month } } = /(?<year>\d{4})-(?<month>\d\d)/.exec("2026-03-01");
return [year, month];
// ---- matchAll
const log = unwrap(await MCP.deploy.getLogs({ service: "api", environment: "staging" }));
return [...log.matchAll(/(\d{4})-(\d\d)/g)].map(m => `${m[1]}/${m[2]}`);
// ---- a loop over exec
const re = /(\w+)=(\w+)/g, found = {};
let m;
while ((m = re.exec("a=1 b=2")) !== null) found[m[1]] = m[2];
return found;
// ---- replace with a function
return "a-b-c".replace(/-(\w)/g, (_, c) => c.toUpperCase());
// ---- dates
const d = new Date("2026-03-01T00:00:00Z");
d.setDate(d.getDate() + 7);
return d.toISOString().slice(0, 10);
// ---- a difference of dates
const days = (new Date("2026-03-08") - new Date("2026-03-01")) / 86400000;
return days;
// ---- dates that are compared
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
const cutoff = new Date("2026-03-02T00:00:00Z");
return items.filter(i => new Date(i.createdAt) > cutoff).length;
// ---- an undeclared global by typeof
return typeof Intl === "undefined" ? "no Intl" : new Intl.NumberFormat("en-US").format(1234567);
// ---- toLocaleDateString in a time zone
return new Date(0).toLocaleDateString("en-US", { timeZone: "UTC" }).length > 0;
// ---- labelled loops
outer: for (const server of ["issues", "mail"]) {
  for (const tool of Object.keys(MCP[server])) {
    if (tool === "listFolders") { text(server); break outer; }
    if (tool.startsWith("x")) continue outer;
  }
}
return "ok";
// ---- a switch
const d = unwrap(await MCP.deploy.getDeployment({ id: "d1" }));
switch (d.status) {
  case "queued":
  case "running": return "later";
  case "succeeded": { const n = d.steps.length; return n; }
  default: return d.status;
}
// ---- a switch on what is unknown
const r = unwrap(await MCP.chat.chatFindUserByEmail({ email: "a@example.com" }));
switch (r.kind) { case "bot": return "bot"; case undefined: return "none"; default: return r.kind; }
// ---- a generator
function* ids(n) { for (let i = 1; i <= n; i++) yield i; }
return [...ids(3)].map(n => n * 2);
// ---- a class with private members
class Counter { #n = 0; static made = 0; constructor() { Counter.made++; } add(k = 1) { this.#n += k; return this; } get value() { return this.#n; } }
return [new Counter().add().add(2).value, Counter.made];
// ---- a class that inherits
class Base { describe() { return this.name ?? "base"; } }
class Sub extends Base { name = "sub"; }
return new Sub().describe();
// ---- functions as constructors
function Point(x, y) { this.x = x; this.y = y; }
Point.prototype.sum = function () { return this.x + this.y; };
return new Point(1, 2).sum();
// ---- arguments of a function
function sum() { return Array.from(arguments).reduce((a, b) => a + b, 0); }
return sum(1, 2, 3);
// ---- fewer arguments than parameters
function label(name, suffix) { return suffix ? name + suffix : name; }
return label("a");
// ---- more arguments than parameters
const log = (message) => message.length;
return ["a", "bb"].map(log);
// ---- a variable of several types
let value = 1;
value = "two";
value = [value];
return value;
// ---- var declared twice
var total = 1;
var total = "two";
return total;
// ---- a variable before its declaration
function f() { return later; }
var later = 3;
return f();
// ---- texts as numbers
return ["10" * 2, "7" - 2, +"3", "5" > 3];
// ---- null and texts
const x = null;
return `${x}` + (x ?? "none");
// ---- comparison of different types
const n = 1;
return [n == "1", n === "1", null == undefined];
// ---- bits and exponents
return [2 ** 10, 5 & 3, ~~3.7, 1 << 4];
// ---- BigInt
return String(2n ** 64n);
// ---- typed arrays
const bytes = new Uint8Array([1, 2, 3]);
return bytes.reduce((a, b) => a + b);
// ---- Base64
const a = unwrap(await MCP.mail.getAttachment({ messageId: "m1", attachmentId: "a1" }));
return [btoa("hello"), atob("aGVsbG8="), typeof a.contentBase64];
// ---- TextEncoder and TextDecoder
return new TextDecoder().decode(new TextEncoder().encode("añb"));
// ---- URL
const u = new URL("https://example.com/a?x=1");
u.searchParams.set("y", 2);
return u.toString();
// ---- URLSearchParams of an object
return new URLSearchParams({ q: "a b", page: 2 }).toString();
// ---- structuredClone
const o = structuredClone({ a: [1], d: new Date(0) });
return o.a.length;
// ---- crypto
return crypto.randomUUID().length;
// ---- performance
return performance.now() >= 0;
// ---- sort and copy
const { channels } = unwrap(await MCP.chat.chatListChannels({}));
return channels.toSorted((a, b) => b.memberCount - a.memberCount).map(c => c.name);
// ---- localeCompare of optional fields
const { projects } = unwrap(await MCP.issues.listProjects({}));
return projects.filter(p => p.description).sort((a, b) => a.description.localeCompare(b.description)).length;
// ---- flat, flatMap and fill
return [[1, [2]], [3]].flat(2).concat(Array(2).fill(0));
// ---- lists by index
const { items } = unwrap(await MCP.issues.listIssues({ project: "a/b" }));
for (let i = 0; i < items.length; i++) items[i].index = i;
return items.map(i => i.index);
// ---- for in
const me = unwrap(await MCP.issues.getMe({}));
const parts = [];
for (const key in me) parts.push(`${key}=${me[key]}`);
return parts.length;
// ---- Object.entries of a result
const me = unwrap(await MCP.issues.getMe({}));
return Object.entries(me).map(([k, v]) => `${k}: ${v.length}`);
// ---- a list of mixed values
const row = [1, "a", null, { x: 1 }];
return row[3].x;
// ---- tuples that are destructured
const pairs = [["a", 1], ["b", 2]];
return pairs.map(([k, v]) => k.repeat(v));
// ---- a nested default
const { a: { b = 2 } = {}, ...rest } = { c: 3 };
return [b, rest.c];
// ---- a getter and a setter
const o = { _n: 1, get n() { return this._n; }, set n(v) { this._n = v; } };
o.n = "x";
return o.n;
// ---- Symbol.iterator
const o = { *[Symbol.iterator]() { yield 1; yield 2; } };
return [...o];
// ---- a tagged template
const tag = (strings, ...values) => strings.raw.join("|") + values.length;
return tag`a${1}b${2}c`;
// ---- an undeclared name that is asked for
return [typeof process, typeof fetch === "function", typeof require];
// ---- code that is not reached
return 1;
console.log("never");
// ---- a name that is not used
const unused = 1, { alsoUnused } = {};
return "ok";
// ---- an empty program of comments and a value
/* nothing */ // here
"value"
// ---- use strict
"use strict";
return [1, 2].includes(2);
// ---- ts-expect-error that is not needed
// @ts-check
// @ts-expect-error
const n = 1;
return n;
// ---- narrowing that a closure undoes
let state = unwrap(await MCP.issues.getIssue({ project: "a/b", number: 1 })).state;
const refresh = async () => { state = "closed"; };
if (state === "open") {
  await refresh();
  if (state === "closed") return "closed meanwhile";
}
return state;
