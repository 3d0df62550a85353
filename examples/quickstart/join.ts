// Who has many open issues and long weeks? One program over two servers: run it with
//   PYTHON=$PWD/.venv/bin/python .venv/bin/codemode-mcp run examples/quickstart/join.ts \
//     --config examples/quickstart/codemode-mcp.json

interface Load {
  name: string;
  team: string;
  openIssues: number;
  oldest: string | null;
  hours: number;
}

const [{ people }, { issues }, week] = await Promise.all([
  MCP.tracker.listPeople().then(unwrap),
  MCP.tracker.listIssues({ state: "open" }).then(unwrap),
  MCP.reports.teamHours({ week: "2026-W23" }).then(unwrap),
]);

const hoursOf = new Map<string, number>(week.people.map((person) => [person.email, person.hours]));

const loads: Load[] = people.map(({ email, name, team }) => {
  const own = issues.filter((issue) => issue.assignee === email);
  return { name, team, openIssues: own.length, oldest: own[0]?.title ?? null, hours: hoursOf.get(email) ?? 0 };
});
loads.sort((a, b) => b.openIssues - a.openIssues || b.hours - a.hours);

text(`Week ${week.week}: ${issues.length} open issues, ${issues.filter((issue) => !issue.assignee).length} unassigned`);
return loads;
