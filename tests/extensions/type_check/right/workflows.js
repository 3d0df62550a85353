// ---- stale issues are closed
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web", state: "open", sort: "updated", direction: "asc", perPage: 100 }));
const limit = Date.now() - 90 * 24 * 3600 * 1000;
const stale = items.filter(i => Date.parse(i.updatedAt) < limit && !i.labels.some(l => l.name === "pinned"));
const closed = [];
for (const { number, title } of stale) {
  const r = await MCP.issues.closeIssue({ project: "acme/web", number, reason: "not_planned", comment: "No activity for 90 days." });
  if (r.isError) { console.warn(`#${number}: ${r.content[0].text}`); continue; }
  closed.push(`#${number} ${title}`);
}
return closed.join("\n") || "none";
// ---- unread mail in a channel
const { messages } = unwrap(await MCP.mail.searchMessages({ filter: { unread: true, folder: "inbox" }, limit: 20 }));
const lines = messages.map(m => `• ${m.from.name ?? m.from.email}: ${m.subject}`);
const { ts } = unwrap(await MCP.chat.chatPostMessage({ channel: "C1", text: lines.join("\n") }));
await MCP.mail.markMessages({ messageIds: messages.map(m => m.id), flags: { unread: false } });
return { ts, count: messages.length };
// ---- failed deployments with their logs
const { services } = unwrap(await MCP.deploy.listServices({ environment: "production" }));
const report = {};
await Promise.all(services.map(async ({ name }) => {
  const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: name, status: "failed", limit: 1 }));
  if (!deployments.length) return;
  const logs = unwrap(await MCP.deploy.getLogs({ service: name, environment: "production", level: "error", since: deployments[0].createdAt }));
  report[name] = { version: deployments[0].version, errors: logs.split("\n").filter(l => /ERROR/.test(l)).length };
}));
return report;
// ---- a meeting for all reviewers
const pr = unwrap(await MCP.issues.getPullRequest({ project: "acme/web", number: 12 }));
const emails = pr.reviewers.map(r => `${r.login}@example.com`.replace(/\s/g, ""));
const { slots } = unwrap(await MCP.calendar.findFreeTime({ attendees: emails, durationMinutes: 30, from: "2026-03-02T08:00:00Z", to: "2026-03-06T18:00:00Z", workingHours: { start: "09:00", end: "17:00", days: ["MO", "TU"] } }));
const slot = slots.find(s => s.conflicts.length === 0) ?? slots[0];
const event = unwrap(await MCP.calendar.createEvent({
  calendarId: "primary", title: `Review: ${pr.title}`, when: { kind: "timed", start: slot.start, end: slot.end },
  attendees: emails.map(email => ({ email })), reminders: [{ method: "popup", minutesBefore: 10 }],
}));
return event.htmlLink;
// ---- revenue by customer
const { data } = unwrap(await MCP.payments.listPayments({ status: "succeeded", limit: 100 }));
const byCustomer = {};
for (const p of data) {
  const key = p.customerId ?? "guest";
  byCustomer[key] ??= { count: 0, amount: 0 };
  byCustomer[key].count++;
  byCustomer[key].amount += p.money.amount - p.refunded.amount;
}
const top = Object.entries(byCustomer).sort(([, a], [, b]) => b.amount - a.amount).slice(0, 3);
return Promise.all(top.map(async ([id, sum]) => id === "guest" ? { id, ...sum } : { name: unwrap(await MCP.payments.getCustomer({ customerId: id })).name, ...sum }));
// ---- schema of all tables
const { result: tables } = unwrap(await MCP.database.listTables({ database: "shop" }));
const out = [];
for (const t of tables) {
  const d = unwrap(await MCP.database.describeTable({ database: "shop", table: t.name, schema: t.schema }));
  out.push(`${d.name}(${d.columns.map(c => c.name + (c.primaryKey ? "*" : "")).join(", ")})`);
}
return out;
// ---- TODOs become issues
const { matches } = unwrap(await MCP.files.searchText({ path: "/src", regex: "TODO:?\\s*(.+)", glob: "*.ts" }));
const created = [];
for (const m of matches.slice(0, 2)) {
  const [, what] = m.text.match(/TODO:?\s*(.+)/) ?? [null, m.text];
  const issue = unwrap(await MCP.issues.createIssue({ project: "acme/web", title: what, body: `${m.file}:${m.line}`, labels: ["todo"] }));
  created.push(issue.number);
}
return created;
// ---- a rollback on high error rates
const { points, unit } = unwrap(await MCP.deploy.queryMetrics({ service: "api", metric: "error_rate", from: "2026-03-01T00:00:00Z", to: "2026-03-01T01:00:00Z", stepSeconds: 60 }));
const values = points.map(p => p.value).filter(v => v != null);
const average = values.reduce((a, b) => a + b, 0) / (values.length || 1);
if (average > 0.05) {
  const d = unwrap(await MCP.deploy.rollBack({ service: "api", environment: "production", reason: `error rate ${average.toFixed(2)} ${unit}` }));
  return d.status;
}
return "healthy";
// ---- two lists are joined
const [{ users }, { contacts }] = (await Promise.all([MCP.chat.chatListUsers({}), MCP.mail.listContacts({})])).map(r => unwrap(r));
const known = new Set(contacts.flatMap(c => c.emails.map(e => e.email)));
return users.filter(u => u.email && known.has(u.email)).map(u => u.realName);
// ---- results of different tools in one list
const results = await Promise.all([MCP.issues.getMe({}), MCP.deploy.listAlerts({}), MCP.files.readTextFile({ path: "/a" })]);
const [me, alerts, file] = results.map(r => unwrap(r));
return [me.login, alerts.alerts.length, file.length];
