// ---- a message that is caught
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) { return e.message; }
// ---- fields of what is caught
try { unwrap(await MCP.issues.getIssue({ project: "missing", number: 1 })); } catch (e) { return [e.name, e.code ?? null, e.data?.tool ?? null]; }
// ---- isError
const r = await MCP.issues.getIssue({ project: "missing", number: 1 });
if (r.isError) return r.content[0].text;
return unwrap(r).title;
// ---- isError with optional chaining
const r = await MCP.files.readTextFile({ path: "missing" });
return r.isError ? r.content?.[0]?.text ?? "unknown" : "ok";
// ---- a list of failures
const failures = [];
for (const project of ["acme/web", "missing"]) {
  try {
    unwrap(await MCP.issues.listLabels({ project }));
  } catch (error) {
    failures.push({ project, error: error.message });
  }
}
return failures;
// ---- an error of a type
try { throw new TypeError("x"); } catch (e) { return e instanceof TypeError ? e.message : String(e); }
// ---- an error without a name
try { unwrap(await MCP.mail.getThread({ threadId: "missing" })); } catch { return "none"; }
// ---- an own error
class NotFound extends Error { constructor(what) { super(`${what} not found`); this.what = what; } }
try { throw new NotFound("issue"); } catch (e) { return e.what; }
// ---- an error with a cause
try {
  try { unwrap(await MCP.mail.getThread({ threadId: "missing" })); } catch (e) { throw new Error("thread", { cause: e }); }
} catch (e) { return e.cause.message; }
// ---- an error that is changed
try { const e = new Error("x"); e.code = "E_X"; throw e; } catch (e) { return e.code; }
// ---- a thrown object
try { throw { code: 7 }; } catch (e) { return e.code; }
// ---- finally around calls
const log = [];
try { log.push(unwrap(await MCP.issues.getMe({})).login); } finally { log.push("done"); }
return log;
// ---- a result or null
async function tryCall(f) { try { return unwrap(await f()); } catch { return null; } }
const a = await tryCall(() => MCP.issues.getMe({})), b = await tryCall(() => MCP.mail.getThread({ threadId: "missing" }));
return [a.login, b];
// ---- a pair of error and value
const safe = async (p) => { try { return [null, unwrap(await p)]; } catch (e) { return [e, null]; } };
const [error, me] = await safe(MCP.issues.getMe({}));
return error ? error.message : me.login;
// ---- unwrap of a result that failed
const r = await MCP.deploy.getService({ name: "missing", environment: "staging" });
try { return unwrap(r).name; } catch (e) { return `failed: ${e}`; }
