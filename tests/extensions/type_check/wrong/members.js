// ---- wrong member: the name of another product's tool
const res = await MCP.issues./*!*/listPullRequestReviews({ project: "acme/web", number: 12 });
return unwrap(res).reviews.length;
// ---- wrong member: singular for plural
const open = unwrap(await MCP.issues./*!*/listIssue({ project: "acme/web", state: "open" }));
return open.items.map(i => i.title);
// ---- wrong member: get for list inside Promise.all
const [issues, labels] = await Promise.all([
  MCP.issues.listIssues({ project: "acme/web" }),
  MCP.issues./*!*/getLabels({ project: "acme/web" }),
]);
return { issues: unwrap(issues).items.length, labels: unwrap(labels).labels.length };
// ---- wrong member: a tool of another server
const { matches } = unwrap(await MCP.files./*!*/searchIssues({ query: "timeout" }));
text(`${matches.length} found`);
// ---- wrong member: a server that is not there
const me = unwrap(await /*!*/MCP.slack.postMessage({ channel: "C1", text: "Deployed" }));
return me.ok;
// ---- wrong member: prefix of the server left out
try {
  const { channels } = unwrap(await MCP.chat./*!*/listChannels({ limit: 100 }));
  return channels.filter(c => !c.isArchived).map(c => c.name);
} catch (e) {
  return `failed: ${e.message}`;
}
// ---- wrong member: a destructured server
const { calendar } = MCP;
const { events } = unwrap(await calendar./*!*/searchEvents({ calendarId: "primary", query: "standup" }));
return events.length;
// ---- wrong member: a destructured tool
const { listServices, /*!*/restart } = MCP.deploy;
const { services } = unwrap(await listServices({ environment: "staging" }));
for (const s of services.filter(s => s.health === "down")) {
  await restart({ name: s.name, environment: "staging" });
}
