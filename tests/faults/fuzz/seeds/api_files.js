const { files } = await API.list("mcp/");
const index = await API.read("mcp/index.d.ts").catch((error) => error.message);
const hits = await API.search("read a file", { limit: 2, server: "files" });
const header = await MCP.files.$api("readFile", { schema: true });
return { files, index, hits, header, root: await MCP.$api() };
