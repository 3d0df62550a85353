// ---- a promise that is awaited later
const p = MCP.issues.getMe({});
const services = unwrap(await MCP.deploy.listServices({}));
const me = unwrap(await p);
return [me.login, services.services.length];
// ---- promises in a list
const promises = [];
for (const number of [1, 2, 3]) promises.push(MCP.issues.getIssue({ project: "acme/web", number }));
const results = await Promise.all(promises);
return results.map(r => unwrap(r).number);
// ---- push in forEach
const promises = [];
[1, 2, 3].forEach(number => promises.push(MCP.issues.getIssue({ project: "acme/web", number })));
return (await Promise.all(promises)).length;
// ---- promises by index
const jobs = {};
for (const name of ["api", "web"]) jobs[name] = MCP.deploy.getService({ name, environment: "staging" });
const out = {};
for (const [name, job] of Object.entries(jobs)) out[name] = unwrap(await job).health;
return out;
// ---- allSettled
const settled = await Promise.allSettled([1, 2].map(number => MCP.issues.getIssue({ project: "acme/web", number })));
return settled.filter(s => s.status === "fulfilled").map(s => unwrap(s.value).title);
// ---- allSettled with reasons
const settled = await Promise.allSettled([MCP.issues.getMe({}), MCP.mail.getMessage({ messageId: "m1" })]);
return settled.map(s => s.status === "rejected" ? s.reason.message : "ok");
// ---- allSettled without a question
const settled = await Promise.allSettled([MCP.issues.getMe({})]);
return unwrap(settled[0].value).login;
// ---- race
const r = await Promise.race([MCP.issues.getMe({}), new Promise((_, reject) => setTimeout(() => reject(new Error("late")), 5000))]);
return unwrap(r).login;
// ---- any
return unwrap(await Promise.any([MCP.issues.getMe({}), MCP.issues.getMe({})])).login;
// ---- then
return MCP.issues.getMe({}).then(r => unwrap(r).login);
// ---- then as the last expression
MCP.issues.getMe({}).then(unwrap).then(me => me.login)
// ---- a call as the last expression
MCP.issues.getMe({})
// ---- a call that is returned
return MCP.issues.getIssue({ project: "acme/web", number: 1 });
// ---- catch on a call
const r = await MCP.issues.getIssue({ project: "missing", number: 1 }).catch(e => ({ isError: true, content: [{ text: e.message }] }));
return r.isError;
// ---- finally
let done = false;
const r = await MCP.issues.getMe({}).finally(() => { done = true; });
return [done, unwrap(r).login];
// ---- arrows that return calls
const issue = (number) => MCP.issues.getIssue({ project: "acme/web", number });
return unwrap(await issue(3)).title;
// ---- async arrows that return calls
const issue = async (number) => MCP.issues.getIssue({ project: "acme/web", number });
return unwrap(await issue(3)).title;
// ---- a map of calls that is awaited
const numbers = [1, 2];
const issues = (await Promise.all(numbers.map(number => MCP.issues.getIssue({ project: "acme/web", number })))).map(unwrap);
return issues.map(i => i.title);
// ---- a map of async functions
const titles = await Promise.all([1, 2].map(async (number) => {
  const r = await MCP.issues.getIssue({ project: "acme/web", number });
  return unwrap(r).title;
}));
return titles;
// ---- for await over calls
const titles = [];
for await (const r of [1, 2].map(number => MCP.issues.getIssue({ project: "acme/web", number }))) titles.push(unwrap(r).title);
return titles;
// ---- chunks
const numbers = Array.from({ length: 7 }, (_, i) => i + 1), chunks = [];
for (let i = 0; i < numbers.length; i += 3) {
  const part = await Promise.all(numbers.slice(i, i + 3).map(number => MCP.issues.getIssue({ project: "acme/web", number })));
  chunks.push(part.map(r => unwrap(r).number).length);
}
return chunks;
// ---- reduce over promises
const titles = await [1, 2].reduce(async (before, number) => {
  const list = await before;
  const r = unwrap(await MCP.issues.getIssue({ project: "acme/web", number }));
  return [...list, r.title];
}, Promise.resolve([]));
return titles;
// ---- a chain in reduce
const last = await [1, 2].reduce((p, number) => p.then(() => MCP.issues.getIssue({ project: "acme/web", number })), Promise.resolve());
return unwrap(last).title;
// ---- a call in a condition
const urgent = true;
urgent && await MCP.issues.addLabels({ project: "acme/web", number: 1, labels: ["urgent"] });
return "ok";
// ---- calls in a ternary
const urgent = false;
urgent ? await MCP.issues.addLabels({ project: "a/b", number: 1, labels: ["urgent"] }) : await MCP.issues.removeLabel({ project: "a/b", number: 1, label: "urgent" });
return "ok";
// ---- a call in a ternary that is awaited as a whole
const byMail = false;
const r = await (byMail ? MCP.mail.sendDraft({ draftId: "d" }) : MCP.chat.chatPostMessage({ channel: "C1", text: "x" }));
return !r.isError;
// ---- a push in a condition
const jobs = [], wanted = true;
wanted && jobs.push(MCP.issues.getMe({}));
return (await Promise.all(jobs)).length;
// ---- a comma expression
let r;
return (r = await MCP.issues.getMe({}), unwrap(r).login);
// ---- an assignment in a condition
let r, n = 0;
while ((r = unwrap(await MCP.issues.getIssue({ project: "a/b", number: ++n }))) && n < 3);
return r.title;
// ---- a promise that is stored and chained
const p = MCP.issues.getMe({});
const q = p.then(r => unwrap(r));
return (await q).login;
// ---- a promise in an object that is awaited
const state = { me: MCP.issues.getMe({}) };
state.me = await state.me;
return unwrap(state.me).login;
// ---- a memory of promises
const memory = new Map();
const service = (name) => {
  if (!memory.has(name)) memory.set(name, MCP.deploy.getService({ name, environment: "staging" }));
  return memory.get(name);
};
const [a, b] = await Promise.all([service("api"), service("api")]);
return [a === b, memory.size];
// ---- a memory by logical assignment
const memory = {};
const get = async (n) => unwrap(await (memory[n] ??= MCP.issues.getIssue({ project: "a/b", number: n })));
return [(await get(1)).number, (await get(1)).number];
// ---- an immediately called function
const result = await (async () => {
  const me = unwrap(await MCP.issues.getMe({}));
  return me.login;
})();
return result;
// ---- an immediately called function as the last expression
(async () => {
  const me = unwrap(await MCP.issues.getMe({}));
  return me.login;
})()
// ---- a main function
async function main() {
  const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
  return items.length;
}
return main();
// ---- a main function as the last expression
async function main() {
  const { items } = unwrap(await MCP.issues.listIssues({ project: "acme/web" }));
  return items.length;
}
main();
// ---- a main function that is awaited
const main = async () => {
  text(unwrap(await MCP.issues.getMe({})).login);
};
await main();
// ---- void on purpose
void MCP.chat.chatAddReaction({ channel: "C1", ts: "1", emoji: "eyes" }).catch(() => {});
return unwrap(await MCP.issues.getMe({})).login;
// ---- retries
async function retry(f, times = 3) {
  for (let i = 0; ; i++) {
    try { return await f(); } catch (e) { if (i + 1 >= times) throw e; await new Promise(r => setTimeout(r, 1)); }
  }
}
return unwrap(await retry(() => MCP.issues.getMe({}))).login;
// ---- polling
let status = "queued", tries = 0;
while (status !== "succeeded" && tries++ < 2) {
  const d = unwrap(await MCP.deploy.getDeployment({ id: "d1" }));
  status = d.status;
  if (status === "failed") throw new Error("failed");
  await new Promise(resolve => setTimeout(resolve, 1));
}
return tries;
// ---- a worker pool
const queue = [1, 2, 3, 4], out = [];
async function worker() {
  while (queue.length > 0) {
    const number = queue.pop();
    out.push(unwrap(await MCP.issues.getIssue({ project: "a/b", number })).title);
  }
}
await Promise.all([worker(), worker()]);
return out.length;
// ---- an async generator
async function* pages() {
  let cursor;
  for (let i = 0; i < 2; i++) {
    const r = unwrap(await MCP.issues.listIssues({ project: "a/b", cursor }));
    yield* r.items;
    cursor = r.page.nextCursor;
  }
}
let n = 0;
for await (const issue of pages()) n += issue.comments;
return n;
// ---- a generator of calls
function* calls() { for (const number of [1, 2]) yield MCP.issues.getIssue({ project: "a/b", number }); }
return (await Promise.all(calls())).length;
// ---- withResolvers by hand
let resolve;
const ready = new Promise(r => { resolve = r; });
MCP.issues.getMe({}).then(r => resolve(unwrap(r).login));
return await ready;
// ---- await of what is no promise
const me = await unwrap(await MCP.issues.getMe({}));
return await me.login;
