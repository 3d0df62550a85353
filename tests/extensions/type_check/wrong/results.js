// ---- missing field: snake case of another product
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
const recent = items.filter(i => Date.parse(i./*!*/created_at) > Date.now() - 86400000);
return recent.length;
// ---- missing field: user for author
const pr = unwrap(await MCP.issues.getPullRequest({ project: "acme/web", number: 3 }));
return `${pr.title} by ${pr./*!*/user.login}`;
// ---- missing field: of a destructured result
const { /*!*/customers } = unwrap(await MCP.payments.listCustomers({ limit: 10 }));
return customers.map(c => c.email);
// ---- missing field: in a sum
const { data } = unwrap(await MCP.payments.listInvoices({ status: "open" }));
const total = data.reduce((sum, invoice) => sum + invoice./*!*/amountDue, 0);
return total / 100;
// ---- missing field: in a helper without types
function describe(service) {
  return `${service.name}: ${service./*!*/replicas.available}/${service.replicas.desired}`;
}
const { services } = unwrap(await MCP.deploy.listServices({ environment: "production" }));
return services.map(describe);
// ---- missing field: in a template string
const balance = unwrap(await MCP.payments.getBalance({}));
for (const money of balance.available) {
  console.log(`${(money./*!*/value / 100).toFixed(2)} ${money.currency.toUpperCase()}`);
}
// ---- missing field: of structuredContent
const r = await MCP.chat.chatPostMessage({ channel: "C1", text: "hi" });
const { ts, channel } = r.structuredContent;
await MCP.chat.chatAddReaction({ channel, ts: r.structuredContent./*!*/messageTs, emoji: "tada" });
return ts;
// ---- missing await: a floating call
const services = ["api", "web", "worker"];
for (const name of services) {
  /*!*/MCP.deploy.scaleService({ name, environment: "staging", replicas: 2 });
}
return "scaled";
// ---- missing await: forEach with calls that float
const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web", labels: ["stale"] }));
items.forEach(issue => {
  /*!*/MCP.issues.closeIssue({ project: "acme/web", number: issue.number, reason: "not_planned" });
});
return items.length;
// ---- missing await: unwrap of a promise
const me = unwrap(/*!*/MCP.issues.getMe({}));
return me.login;
// ---- missing await: a member of the promise
const result = MCP.mail.listFolders({});
const inbox = /*!*/result.structuredContent.folders.find(f => f.role === "inbox");
return inbox.unreadCount;
// ---- missing await: of a helper
async function getOwner(name) {
  const service = unwrap(await MCP.deploy.getService({ name, environment: "production" }));
  return service.owners;
}
const owners = getOwner("api");
return owners./*!*/join(", ");
// ---- missing await: parentheses at the wrong place
const { channels } = await unwrap(/*!*/MCP.chat.chatListChannels({}));
return channels.map(c => c.name);
// ---- wrong union member: a state of another product
const prs = unwrap(await MCP.issues.listPullRequests({ project: "acme/web", /*!*/state: "merged" }));
return prs.items.length;
// ---- wrong union member: upper case
const alerts = unwrap(await MCP.deploy.listAlerts({ /*!*/severity: "CRITICAL" }));
return alerts.alerts.map(a => a.summary);
// ---- wrong union member: compared with a value that cannot be
const { deployments } = unwrap(await MCP.deploy.listDeployments({ service: "api" }));
const good = deployments.filter(d => /*!*/d.status === "success");
return good[0]?.version;
// ---- wrong nesting: a wrapper of another API
const res = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
for (const issue of res./*!*/data.items) text(issue.title);
// ---- wrong nesting: one level too few
const found = unwrap(await MCP.issues.searchIssues({ query: "memory leak" }));
return found.items.map(hit => `${hit./*!*/title} (${hit.score})`);
// ---- wrong nesting: arguments wrapped
const r = await MCP.issues.createIssue({ /*!*/arguments: { project: "acme/web", title: "Crash at start" } });
return unwrap(r).number;
// ---- array or object: map of the page
const page = unwrap(await MCP.deploy.listServices({ environment: "production" }));
return page./*!*/map(s => s.name);
