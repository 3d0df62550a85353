// ---- type arguments of a call are comparisons in JavaScript => 2
const f = (x) => x
f<number>(2)
// ---- an enum made by hand => {"A": 0}
const Kinds = { A: 0 }
Kinds
// ---- a plain script => 3
const a = 1
a + 2
// ---- MCP without any types => 1
unwrap(await MCP.tracker.getIssue({ issue_id: 1 })).id
// ---- sloppy names that TypeScript allows too => 3
const type = 1, of = 2
type + of
// ---- a returned object => {"a": 1}
return { a: 1 }
// ---- braces at the end are a block => nothing
{ a: 1 }
// ---- a template over lines => "a\nb"
`a
b`
