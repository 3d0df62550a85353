// ---- missing field: the name in the tool's own casing
const invoice = unwrap(await MCP.payments.getInvoice({ invoiceId: "in_1" }));
const due = new Date(invoice./*!*/due_date);
return due.getTime() < Date.now();
// ---- missing field: assigned to a typed variable
interface Person { name: string; email: string }
const { contacts } = unwrap(await MCP.mail.listContacts({ query: "smith" }));
const people: Person[] = contacts.map((c) => ({ name: c.name, email: c./*!*/email }));
return people;
// ---- missing field: length of a count
const search = unwrap(await MCP.mail.searchMessages({ query: "invoice" }));
return search./*!*/total > 10 ? "many" : search.messages.map((m) => m.subject);
// ---- missing await: a loop over a member of the promise
const thread = MCP.mail.getThread({ threadId: "t1" });
const texts: string[] = [];
for (const message of /*!*/thread.messages) texts.push(message.body.text);
return texts.join("\n---\n");
// ---- missing await: a map of promises used as values
const numbers: number[] = [1, 2, 3];
const issues = numbers.map((number) => MCP.issues.getIssue({ project: "acme/web", number }));
return issues.filter((i) => i./*!*/structuredContent?.state === "open").length;
// ---- missing await: a write before a read
/*!*/MCP.files.writeFile({ path: "/tmp/report.md", content: "# Report" });
const written = await MCP.files.getFileInfo({ path: "/tmp/report.md" });
return unwrap(written).size;
// ---- missing await: in a condition
async function exists(path: string): Promise<boolean> {
  const info = await MCP.files.getFileInfo({ path });
  return !info.isError;
}
if (/*!*/exists("/src/config.ts")) {
  return "there";
}
return "absent";
// ---- missing await: destructuring of a promise
const { /*!*/structuredContent } = MCP.issues.getMe({});
return structuredContent.login;
// ---- wrong union member: a near word
const merged = unwrap(await MCP.issues.mergePullRequest({ project: "acme/web", number: 5, /*!*/method: "fast-forward" }));
return merged.sha;
// ---- wrong union member: prod for production
const environments = ["staging", "prod"] as const;
for (const environment of environments) {
  const service = unwrap(await MCP.deploy.getService({ name: "api", /*!*/environment }));
  text(`${environment}: ${service.health}`);
}
// ---- wrong union member: the kind of a discriminated union
const event = unwrap(await MCP.calendar.createEvent({
  calendarId: "primary",
  title: "Holiday",
  /*!*/when: { /*!*/kind: "all_day", startDate: "2026-05-01", endDate: "2026-05-02" },
}));
return event.id;
// ---- wrong union member: a case that cannot be
const alert = unwrap(await MCP.deploy.acknowledgeAlert({ id: "a1" }));
switch (alert.severity) {
  case "critical": return 3;
  case /*!*/"error": return 2;
  default: return 1;
}
// ---- wrong nesting: dates at the top of the event
const { events } = unwrap(await MCP.calendar.listEvents({
  calendarId: "primary", timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-08T00:00:00Z",
}));
return events.map((e) => `${e./*!*/start} ${e.title}`);
// ---- wrong nesting: the field of a result without unwrap
const result = await MCP.payments.listSubscriptions({ status: "past_due" });
const late = /*!*/result.data.map((s) => s.customerId);
return late;
// ---- wrong nesting: result.result
const tables = await MCP.database.listTables({ database: "shop" });
return unwrap(tables).result./*!*/tables.map((t) => t.name);
// ---- wrong nesting: options inside another object
const rows = unwrap(await MCP.database.query({
  database: "shop",
  sql: "SELECT * FROM orders WHERE total > $1",
  /*!*/options: { params: [100], limit: 20 },
}));
return rows.rows;
// ---- array or object: an index into an object
const free = unwrap(await MCP.calendar.getFreeBusy({
  calendarIds: ["ada@example.com"], timeMin: "2026-03-01T00:00:00Z", timeMax: "2026-03-02T00:00:00Z",
}));
return free.calendars./*!*/map((c) => c.busy.length);
// ---- array or object: a list used as one
const service = unwrap(await MCP.deploy.listServices({ environment: "staging" }));
return `${service.services./*!*/name} is ${service.services.length ? "up" : "absent"}`;
