const slow = MCP.files.readFile({ path: "slow" });
const late = new Promise((resolve, reject) => setTimeout(() => reject(new Error("late")), 50));
const winner = await Promise.race([slow, late]).catch((error) => error.message);
return winner;
