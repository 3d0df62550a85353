const paths = ["a", "b", "c"];
const results = await Promise.all(paths.map((path) => MCP.files.readFile({ path })));
const sizes = results.map((result) => unwrap(result)?.size ?? 0);
text(`read ${sizes.length} files`);
return sizes.reduce((sum, size) => sum + size, 0);
