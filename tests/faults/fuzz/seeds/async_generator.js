async function* pages(limit) {
  for (let i = 0; i < limit; i++) {
    const page = await MCP.files.readFile({ path: "p" + i });
    yield page.content?.[0]?.text ?? i;
  }
}
const all = [];
for await (const page of pages(4)) {
  if (page === 3) break;
  all.push(page);
}
all
