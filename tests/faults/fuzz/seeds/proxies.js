const seen = [];
const watched = new Proxy({ a: 1 }, {
  get(target, key, receiver) { seen.push(String(key)); return Reflect.get(target, key, receiver); },
  has(target, key) { return key !== "hidden" && key in target; },
  ownKeys: () => ["a", "b"],
  getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }),
});
watched.a; "hidden" in watched; Object.keys(watched);
return [seen, watched];
