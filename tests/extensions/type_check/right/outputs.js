// ---- text, json and a value
text("Report");
json({ a: 1 });
text(unwrap(await MCP.issues.getMe({})));
return "done";
// ---- an image
const r = await MCP.files.readMediaFile({ path: "/a.png" });
image(r);
return r.content.length;
// ---- an image block
const r = await MCP.files.readMediaFile({ path: "/a.png" });
image(r.content[0]);
return "shown";
// ---- an image by its type
const r = await MCP.files.readMediaFile({ path: "/a.png" });
for (const block of r.content) if (block.type === "image") image(block);
return r.content[0].mimeType;
// ---- console
console.log("a", { b: 1 }, [1]);
console.error(new Error("x"));
console.table([{ a: 1 }]);
return "ok";
// ---- store and load
store("count", 1);
const n = await load("count");
store("count", n + 1);
return await load("count");
// ---- a load with a default
const seen = (await load("no-such-key")) ?? [];
seen.push(1);
return seen.length;
// ---- a load that grows
const state = (await load("no-state")) || { runs: 0, last: null };
state.runs += 1;
state.last = unwrap(await MCP.issues.getMe({})).login;
store("state", state);
return state;
// ---- yield_control
text("before");
await yield_control("a pause");
return unwrap(await MCP.issues.getMe({})).login;
// ---- timers
let n = 0;
const timer = setInterval(() => n++, 1);
await new Promise(r => setTimeout(r, 10));
clearInterval(timer);
return n >= 0;
// ---- args
const [name = "world"] = args;
return `hello ${name}`;
// ---- a table in Markdown
const { services } = unwrap(await MCP.deploy.listServices({ environment: "production" }));
const rows = services.map(s => `| ${s.name} | ${s.health} | ${s.replicas.ready}/${s.replicas.desired} |`);
return ["| service | health | replicas |", "|---|---|---|", ...rows].join("\n");
// ---- a CSV
const { data } = unwrap(await MCP.payments.listInvoices({ status: "open" }));
const csv = [["number", "total"], ...data.map(i => [i.number, i.total.amount / 100])].map(r => r.join(",")).join("\n");
return unwrap(await MCP.files.writeFile({ path: "/invoices.csv", content: csv }));
// ---- JSON in a file
const { rows } = unwrap(await MCP.database.query({ database: "shop", sql: "SELECT 1" }));
return unwrap(await MCP.files.writeFile({ path: "/rows.json", content: JSON.stringify(rows) }));
