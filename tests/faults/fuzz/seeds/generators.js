function* inner() { try { const got = yield 1; yield got; } finally { yield "cleanup"; } }
function* outer() { const result = yield* inner(); return result; }
const it = outer();
const seen = [it.next(), it.next("sent"), it.return("early"), it.next()];
const lazy = Iterator.from({ *[Symbol.iterator]() { yield* [1, 2, 3, 4]; } }).filter((x) => x % 2).map((x) => x * 2).toArray();
const [first, ...others] = (function* () { yield* "abc"; })();
return [seen, lazy, first, others];
