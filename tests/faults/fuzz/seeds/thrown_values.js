const values = [null, undefined, 5, "text", { message: "plain" }, Object.create(null), new Proxy({}, {}), Symbol("s")];
const told = [];
for (const value of values) { try { throw value; } catch (error) { told.push(typeof error); } }
const error = new Error("outer", { cause: new AggregateError([new Error("one"), 2], "many") });
error.stack = 7; error.name = { toString() { throw 1; } };
text(error); json(told);
throw error;
