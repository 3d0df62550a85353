"""Promises, async functions, timers, and the order in which their callbacks run."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import SHOW, fill, integer, items

POOLS = {
    "n": integer(0, 4),
    "ms": items("0 ;; 5 ;; 10 ;; 20 ;; 35"),
    "value": items(
        "1 ;; 'v' ;; Promise.resolve('p') ;; undefined ;; { then(r) { log('then called'); r('thenable') } } ;; null ;; (async () => 'a')()"
    ),
    "failure": items("new Error('e') ;; 'text' ;; 5 ;; null ;; new TypeError('t') ;; undefined"),
    "promise": items("""
        Promise.resolve(<<value>>) ;; Promise.reject(<<failure>>) ;; wait(<<ms>>, "w<<n>>") ;; new Promise((r) => r(<<value>>)) ;; (async () => <<value>>)() ;; <<value>>
        (async () => { await null; throw <<failure>> })() ;; new Promise((_, r) => setTimeout(r, <<ms>>, <<failure>>)) ;; Promise.resolve(1).then(() => <<value>>) ;; later("l<<n>>")
        new Promise(() => { throw <<failure>> }) ;; Promise.resolve().then(() => Promise.reject(<<failure>>)) ;; Promise.resolve(2).finally(() => 9)
    """),
    "combine": items("Promise.all ;; Promise.allSettled ;; Promise.race ;; Promise.any"),
    "step": items("""
        log("s<<n>>");
        Promise.resolve(<<value>>).then((v) => log("then <<n>> " + show(v)), (e) => log("no " + show(e)));
        <<promise>>?.then?.((v) => log("a<<n>> " + show(v)), (e) => log("b<<n>> " + show(e)));
        setTimeout(() => log("timer <<n>>"), <<ms>>);
        setTimeout((x) => { log("timer x" + x); Promise.resolve().then(() => log("after timer <<n>>")) }, <<ms>>, "<<n>>");
        queueMicrotask(() => log("micro <<n>>"));
        (async () => { log("start <<n>>"); await null; log("middle <<n>>"); await <<value>>; log("end <<n>>") })();
        await null;
        log(await Promise.resolve(<<value>>).then(show));
        try { log(show(await <<promise>>)) } catch (e) { log("caught " + show(e)) }
        try { log(show(await <<combine>>([<<promise>>, <<promise>>, <<promise>>]))) } catch (e) { log("caught " + show(e)) }
        <<combine>>([<<promise>>, <<promise>>]).then((v) => log("c<<n>> " + show(v)), (e) => log("d<<n>> " + show(e)));
        for await (const x of [<<promise>>, <<value>>].map((p) => Promise.resolve(p).catch((e) => "handled " + show(e)))) log(show(x));
        for (const x of [1, 2]) { await wait(<<ms>>); log("loop " + x) }
        await Promise.all([later("x"), later("y"), wait(<<ms>>)]).then((v) => log(show(v)));
        clearTimeout(setTimeout(() => log("never"), <<ms>>));
        { const id = setInterval(() => { log("tick"); if (++ticks > 2) clearInterval(id) }, 7); }
        Promise.reject(<<failure>>).catch((e) => { log("h<<n>> " + show(e)); throw <<failure>> }).finally(() => log("fin")).catch((e) => log("again " + show(e)));
        await (async function* () { yield 1; yield later("g"); })().next().then((r) => log(show(r)));
        { const { promise, resolve } = deferred(); setTimeout(resolve, <<ms>>, "d"); log(show(await promise)); }
        await Promise.race([wait(20, "slow"), wait(5, "fast")]).then(log);
        { const results = []; await Promise.all([3, 1, 2].map(async (x) => { await wait(x * 3); results.push(x) })); log(show(results)); }
        { const queue = ["a", "b", "c", "d"]; const worker = async (w) => { for (let job; (job = queue.shift()); ) { await wait(w * 4); log(w + job) } }; await Promise.all([worker(1), worker(2)]); }
        { let p = Promise.resolve(0); for (let i = 0; i < 3; i++) p = p.then((v) => (log("chain " + v), v + 1)); await p; }
        await Promise.resolve({ then(resolve) { setTimeout(resolve, <<ms>>, "late") } }).then((v) => log(show(v)));
        { const retry = async (f, left) => { try { return await f() } catch (e) { if (left === 0) throw e; log("retry " + left); return retry(f, left - 1) } }; let calls = 0; log(show(await retry(async () => { if (++calls < 3) throw new Error("no"); return calls }, 3))); }
    """),
}

SETUP = """
const lines = [], log = (line) => { lines.push(String(line)) };
let ticks = 0;
const wait = (ms, value) => new Promise((resolve) => setTimeout(resolve, ms, value));
const later = async (value) => { log("later " + value); await null; return value };
const deferred = () => { const d = {}; d.promise = new Promise((resolve, reject) => Object.assign(d, { resolve, reject })); return d };
"""


def program(random: Random) -> str:
    """Return a program of some steps, which then waits for everything that it has begun."""
    steps = "\n".join(fill(random, random.choice(POOLS["step"]), POOLS) for _ in range(random.randint(3, 7)))
    return f"{SETUP}{steps}\nawait wait(200);\nreturn lines;\n{SHOW}"
