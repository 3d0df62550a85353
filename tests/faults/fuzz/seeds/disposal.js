const log = [];
{
  using a = { [Symbol.dispose]() { log.push("a"); } };
  await using b = { async [Symbol.asyncDispose]() { await null; log.push("b"); } };
  log.push("body");
}
try { using c = { [Symbol.dispose]() { throw new Error("dispose"); } }; throw new Error("body"); } catch (error) { log.push(error.name); }
return log;
