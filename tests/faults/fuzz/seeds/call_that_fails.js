try {
  await MCP.lost.anything({ a: 1 });
} catch (error) {
  console.error(error.name, error.message, error.code, error.data);
  throw new Error("could not read", { cause: error });
} finally {
  text("over");
}
