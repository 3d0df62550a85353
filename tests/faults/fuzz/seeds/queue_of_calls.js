const pending = [];
for (let i = 0; i < 40; i++) {
  pending.push(MCP.files.readFile({ path: String(i) }).then(unwrap, (error) => error.code));
  if (pending.length === 8) await Promise.any(pending.splice(0, 4));
}
const settled = await Promise.allSettled(pending);
return settled.map(({ status }) => status);
