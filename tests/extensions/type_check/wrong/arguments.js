// ---- wrong argument type: a number as text
const r = await MCP.issues.getIssue({ project: "acme/web", /*!*/number: "42" });
return unwrap(r).title;
// ---- wrong argument type: a joined list
const labels = ["bug", "urgent"];
const r = await MCP.issues.listIssues({ project: "acme/web", /*!*/labels: labels.join(",") });
unwrap(r).items.length;
// ---- wrong argument type: a number from a regular expression
const m = /#(\d+)/.exec("Fixes #123 as discussed");
if (m) {
  const issue = unwrap(await MCP.issues.getIssue({ project: "acme/api", /*!*/number: m[1] }));
  text(issue.title);
}
// ---- wrong argument type: text for an object
const sent = unwrap(await MCP.mail.sendMessage({
  to: ["ada@example.com"],
  subject: "Weekly report",
  /*!*/body: "All systems are up.",
}));
return sent.messageId;
// ---- wrong argument type: positional arguments
const issue = await MCP.issues.getIssue(/*!*/"acme/web", 17);
return unwrap(issue);
// ---- missing argument: of a deployment
const d = unwrap(await MCP.deploy.startDeployment(/*!*/{ service: "api", version: "1.4.2" }));
return d.status;
// ---- missing argument: the idempotency key in a loop
const { data } = unwrap(await MCP.payments.listPayments({ status: "succeeded", limit: 10 }));
const refunds = [];
for (const p of data) {
  if (p.money.amount < 100) {
    const r = await MCP.payments.refundPayment(/*!*/{ paymentId: p.id, reason: "duplicate" });
    refunds.push(unwrap(r).refundId);
  }
}
return refunds;
// ---- missing argument: no argument at all
const { tables } = unwrap(await MCP.database./*!*/listTables());
return tables;
// ---- unknown argument: another product's name for a field
const { items } = unwrap(await MCP.issues.listIssues({ /*!*/repo: "acme/web", /*!*/state: "open" }));
return items.length;
// ---- unknown argument: snake case
const page = unwrap(await MCP.issues.listIssues({ project: "acme/web", /*!*/per_page: 50 }));
page.items.map(({ number, title }) => `#${number} ${title}`).join("\n");
// ---- unknown argument: of a nested object
const event = unwrap(await MCP.calendar.createEvent({
  calendarId: "primary",
  title: "Planning",
  when: { kind: "timed", start: "2026-03-02T09:00:00Z", end: "2026-03-02T10:00:00Z" },
  attendees: [{ email: "bo@example.com", /*!*/required: true }],
}));
return event.htmlLink;
// ---- array or object: one address for a list
const sent = unwrap(await MCP.mail.sendMessage({
  /*!*/to: "ada@example.com",
  subject: "Hello",
  body: { text: "Hi Ada" },
}));
return sent.accepted.length;
// ---- array or object: a list of ids where there is one
const ids = ["m1", "m2", "m3"];
const messages = await Promise.all([
  MCP.mail.getMessage({ /*!*/messageId: ids }),
]);
return messages.map(m => unwrap(m).subject);
// ---- array or object: statements as text
const done = unwrap(await MCP.database.runTransaction({
  database: "shop",
  statements: [
    /*!*/"UPDATE orders SET state = 'paid' WHERE id = 7",
    /*!*/"DELETE FROM carts WHERE order_id = 7",
  ],
}));
return done.committed;
