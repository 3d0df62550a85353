const listed = await tools.search("issue", { limit: 3 });
const described = await tools.describe("plugin:issues:list");
const called = await tools.call("plugin:issues:list", { state: "open" });
const direct = await tools.list({ state: "closed" });
return [ALL_TOOLS.length, listed, described, called, direct];
