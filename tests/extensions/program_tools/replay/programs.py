"""Programs whose runs are recorded and replayed, over the fakes of `test_recorded_runs`.

`fake` has the tools `echo` (gives its arguments back), `late` (ends after the number of milliseconds that it is given),
`fails`, `isError`, `picture` and `big`. `issues` is a namespace of a plugin, and `SAVED` are saved programs.
"""

from __future__ import annotations

from typing import Final

from tests.runs.saved_programs import DOUBLE

SAVED: Final = {
    "double": DOUBLE,
    "sum": """/** @param {{ ns: number[] }} input */
export default async ({ ns }) => {
  const twice = await Promise.all(ns.map((n) => programs.double({ n })));
  return twice.reduce((sum, each) => sum + each.twice, 0);
};""",
    "slow": """/** @param {{ ms: number }} input */
export default async ({ ms }) => {
  text("begins");
  const found = unwrap(await MCP.fake.late({ ms }));
  return { found, at: Date.now(), random: Math.random() };
};""",
}

PROGRAMS: Final = (
    # times and random numbers
    "return [Date.now(), new Date().toISOString(), performance.now(), Math.random()]",
    "text(new Date()); await fake.echo({}); text(new Date()); return performance.now()",
    "const began = Date.now(); while (Date.now() < began + 5); return Date.now() - began >= 5",
    "let n = 0; for (const end = performance.now() + 5; performance.now() < end;) n += 1; return n",
    "return Array.from({ length: 50 }, () => Math.random())",
    "return [crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(16))]]",
    "const ids = []; for (let i = 0; i < 3; i++) { await fake.echo({ i }); ids.push(crypto.randomUUID()) } return ids",
    "return new Date(Date.now()).toLocaleString('en-US', { timeZone: 'Asia/Tokyo' })",
    "const f = new Intl.DateTimeFormat('de', { timeStyle: 'long', timeZone: 'Asia/Tokyo' }); "
    "await fake.late({ ms: 1 }); return [f.format(Date.now()), (1234.5).toLocaleString('fr')]",
    "return [new Date(2020, 5, 1, 12).toString(), new Date().getTimezoneOffset()]",
    "return await fake.echo({ id: crypto.randomUUID(), at: Date.now(), r: Math.random() })",
    # calls in parallel, and races
    "return Promise.all([5, 1, 3].map((ms) => fake.late({ ms })))",
    "const got = []; const ask = async (ms) => { await fake.late({ ms }); got.push(ms) }; "
    "await Promise.all([6, 1, 4, 2].map(ask)); return got",
    "return Promise.race([8, 1, 4].map((ms) => fake.late({ ms })))",
    "return Promise.any([fake.fails({}), fake.late({ ms: 2 })])",
    "return (await Promise.allSettled([fake.fails({}), fake.late({ ms: 1 })])).map((each) => each.status)",
    "return Promise.all(Array.from({ length: 40 }, (_, i) => fake.late({ ms: i % 4, i })))",
    "const out = []; for await (const each of [1, 2, 3].map((ms) => fake.late({ ms }))) out.push(each); return out",
    "const a = fake.late({ ms: 4 }); const b = await fake.late({ ms: 1 }); return [b, await a]",
    "const same = { x: 1 }; return Promise.all([fake.echo(same), fake.echo(same), fake.echo({ x: 1 })])",
    "fake.late({ ms: 1 }); return 'left a call alone'",
    # timers
    "await new Promise((resolve) => setTimeout(resolve, 3)); return 'slept'",
    "const got = []; const s = (ms) => new Promise((r) => setTimeout(() => { got.push(ms); r() }, ms)); "
    "await Promise.all([4, 1, 2, 1].map(s)); return got",
    "let n = 0; let t; await new Promise((r) => { t = setInterval(() => { if (++n === 4) r() }, 1) }); "
    "clearInterval(t); return n",
    "const t = setTimeout(() => text('never'), 50); clearTimeout(t); return fake.late({ ms: 1 })",
    "return Promise.race([new Promise((r) => setTimeout(r, 60_000, 'late')), fake.late({ ms: 1 })])",
    "return Promise.race([new Promise((r) => setTimeout(r, 1, 'timer')), fake.late({ ms: 30 })])",
    "const got = []; setTimeout(() => got.push('t')); queueMicrotask(() => got.push('m')); got.push('s'); "
    "await fake.late({ ms: 3 }); return got",
    # suspensions
    "text('a'); await yield_control('look'); text('b'); return Math.random()",
    "let n = 0; for (let i = 0; i < 4; i++) { n += (await fake.echo({ i })).i; await yield_control() } return n",
    "const held = fake.late({ ms: 5 }); await yield_control(); return [await held, Date.now()]",
    "const big = 'x'.repeat(200_000); await yield_control(); return big.length",
    "const map = new Map([[1, { a: [1, 2] }]]); await yield_control(); map.get(1).a.push(performance.now()); "
    "return [...map]",
    "function* gen() { yield 1; yield 2 } const it = gen(); it.next(); await yield_control(); return it.next()",
    "const t = new Promise((r) => setTimeout(r, 4, 'fired')); await yield_control(); return t",
    "await yield_control(); await yield_control(); throw new Error('after two suspensions')",
    "const r = []; for (let i = 0; i < 3; i++) { await yield_control(); r.push(Math.random(), Date.now()) } return r",
    # errors
    "throw new TypeError('wrong')",
    "const item = await fake.echo({}); return item.missing.deeper",
    "function inner() { null.x } function outer() { inner() } outer()",
    "return fake.fails({})",
    "try { await fake.fails({}) } catch (error) { return [error.name, error.message, error.code] }",
    "return unwrap(await MCP.fake.isError({}))",
    "const r = await MCP.fake.isError({}); return 'did not look'",
    "return MCP.fake.isError({})",
    "Promise.reject(new Error('not handled')); return 1",
    "setTimeout(() => { throw new Error('in a timer') }, 1); await fake.late({ ms: 5 }); return 1",
    "return tools.call('mcp:fake:nothing', {})",
    "return tools.call('mcp:fake:echo', 7)",
    "const f = () => f(); f()",
    "await new Promise(() => {})",
    "return 10n",
    "return issues.nothing()",
    "throw null",
    "const a = []; for (;;) a.push(new Array(100_000).fill(1.5))",
    "await fake.late({ ms: 1 }); text('computes'); for (;;);",
    "for (let i = 0; ; i++) text(i)",
    # stored values
    "await store('k', { a: 1 }); return [await load('k'), await load('absent')]",
    "store('later', Math.random()); return 'stored at the end'",
    "return await load('absent')",
    "await store('n', 1); const n = await load('n'); await store('n', n + 1); return load('n')",
    # look-ups
    "return API.search('echo')",
    "return [await API.list('mcp/'), (await API.read('mcp/fake.d.ts')).length]",
    "return [await MCP.$api(), await MCP.fake.$api()]",
    "return [(await tools.search('issues')).length, await tools.describe('mcp:fake:echo')]",
    "return API.read('mcp/none.d.ts').catch((error) => error.message)",
    "await Promise.all([API.search('big'), fake.late({ ms: 1 })]); return 'both'",
    # output
    "text('one'); json({ two: [2] }); text(3); return null",
    "return undefined",
    "image(await MCP.fake.picture({})); return 'shown'",
    "for (let i = 0; i < 200; i++) text('line ' + i)",
    "return fake.big({ size: 300_000 })",
    "text('y'.repeat(60_000)); return 'z'.repeat(60_000)",
    "return { emoji: '🙂', lone: '\\ud800', zero: -0, nan: NaN, date: new Date(0), un: undefined }",
    "console.log('log', { a: 1 }); console.error('err'); return 1",
    "return await fake.echo({ deep: { list: [1, 'two', null, true, { '': 0 }] } })",
    # namespaces
    "return [issues.team, await issues.list({ state: 'open' })]",
    "return Promise.all([issues.add('a'), issues.add('b', 2)])",
    "await issues.list({}); await yield_control(); return issues.list({ page: 2 })",
    # saved programs
    "return programs.double({ n: 4 })",
    "return Promise.all([1, 2, 3].map((n) => programs.double({ n })))",
    "return programs.double({ n: 101 })",
    "return programs.double({ n: 101 }).catch((error) => [error.message, error.code])",
    "return [await programs.sum({ ns: [1, 2] }), await programs.double({ n: 2 })]",
    "return [Date.now(), await programs.slow({ ms: 3 }), Math.random()]",
    "const later = programs.slow({ ms: 6 }); await yield_control(); return later",
    "return programs.double({ n: 'four' })",
    "return [(await API.list('programs/')).files.length, await API.search('double a number')]",
    # arguments, and globals
    "return args",
    "return [typeof process, Object.keys(globalThis).length, typeof structuredClone]",
    "return JSON.stringify(structuredClone({ at: new Date(), set: new Set([1]) }))",
    "return new URL('https://example.org/a?b=' + Math.random()).searchParams.get('b')",
    "return [new TextEncoder().encode('é').length, btoa('x'), atob('eA==')]",
    "return [3, 1, 2].sort(() => Math.random() - 0.5)",
)
