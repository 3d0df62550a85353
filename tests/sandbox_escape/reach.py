"""Tests of what a program can reach, in the guest's own JavaScript.

A place is a list of steps. The first is a root; `.name` and `@symbol` are properties, `<` and `>` before either of them
their getter and setter, `^` is the prototype.
"""

from __future__ import annotations

WALK = r"""
const protoOf = Object.getPrototypeOf;
const ROOTS = {
  __proto__: null,
  globalThis,
  asyncFunction: protoOf(async () => {}),
  generator: protoOf(function* () {}),
  asyncGenerator: protoOf(async function* () {}),
  arrayIterator: protoOf([].values()),
  mapIterator: protoOf(new Map().entries()),
  setIterator: protoOf(new Set().values()),
  stringIterator: protoOf(""[Symbol.iterator]()),
  matchIterator: protoOf(/a/[Symbol.matchAll]("")),
  iteratorHelper: protoOf([].values().map((v) => v)),
  wrappedIterator: protoOf(Iterator.from({ next() {} })),
  searchParamsIterator: protoOf(new URLSearchParams("a=b").entries()),
  error: new Error(),
};
function walk(roots) {
  const found = new Map();
  const queue = [];
  for (const name in roots) queue.push([roots[name], [name]]);
  for (let i = 0; i < queue.length; i++) {
    const [object, place] = queue[i];
    if (found.has(object)) continue;
    found.set(object, place);
    const visit = (v, step) => {
      if ((typeof v === "object" && v !== null) || typeof v === "function") queue.push([v, [...place, step]]);
    };
    visit(protoOf(object), "^");
    for (const key of Reflect.ownKeys(object)) {
      const name = typeof key === "symbol" ? "@" + key.description : "." + key;
      const { value, get, set } = Object.getOwnPropertyDescriptor(object, key);
      visit(value, name);
      visit(get, "<" + name);
      visit(set, ">" + name);
    }
  }
  return found;
}
"""
"""Declares `ROOTS`, what syntax and the global object lead to, and `walk(roots)`, a map of every object that can be
reached to its place."""

FIND = r"""
function keyOf(step) {
  if (step[0] === ".") return step.slice(1);
  return Symbol[step.slice("@Symbol.".length)];
}
function find(place) {
  let object = ROOTS[place[0]];
  for (const step of place.slice(1)) {
    if (step === "^") object = protoOf(object);
    else if (step[0] === "<") object = Object.getOwnPropertyDescriptor(object, keyOf(step.slice(1))).get;
    else if (step[0] === ">") object = Object.getOwnPropertyDescriptor(object, keyOf(step.slice(1))).set;
    else object = Object.getOwnPropertyDescriptor(object, keyOf(step)).value;
  }
  return object;
}
"""
"""Declares `find(place)`, the object at a place; needs `WALK`."""
