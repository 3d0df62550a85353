// ---- wrong member: an abbreviation
const result = await MCP.issues./*!*/getPr({ project: "acme/web", number: 7 });
const pr = unwrap(result);
return pr.mergeable === true ? "ready" : "not yet";
// ---- wrong member: verb from another server's style
interface Invitation { email: string; title: string }
const invitations: Invitation[] = [{ email: "bo@example.com", title: "Review" }];
for (const { email, title } of invitations) {
  await MCP.calendar./*!*/insertEvent({
    calendarId: "primary",
    title,
    when: { kind: "timed", start: "2026-03-02T10:00:00Z", end: "2026-03-02T11:00:00Z" },
    attendees: [{ email }],
  });
}
return invitations.length;
// ---- wrong member: in a helper
async function countFailed(service: string): Promise<number> {
  const { deployments } = unwrap(await MCP.deploy./*!*/getDeployments({ service, status: "failed" }));
  return deployments.length;
}
return Object.fromEntries(await Promise.all(["api", "web"].map(async s => [s, await countFailed(s)])));
// ---- wrong member: a longer name
const files = unwrap(await MCP.files.searchText({ path: "/src", regex: "TODO" })) as { matches: { file: string }[] };
const names = [...new Set(files.matches.map(m => m.file))];
const issue = unwrap(await MCP.issues.createIssue({ project: "acme/web", title: `TODOs in ${names.length} files` }));
await MCP.issues./*!*/addIssueComment({ project: "acme/web", number: issue.number, body: names.join("\n") });
