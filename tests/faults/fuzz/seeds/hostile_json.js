const value = {
  toJSON(key) { return key === "" ? { then: 1, __proto__: { x: 1 } } : this; },
  get boom() { throw new Error("boom"); },
  nested: [new Map([[1, { a: new Set([1]) }]]), 5n, Symbol("s"), () => 1, NaN, -0],
};
value.self = value;
json(value);
return value;
