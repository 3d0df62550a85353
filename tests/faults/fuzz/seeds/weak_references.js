const registry = new FinalizationRegistry((held) => text("gone " + held));
let target = { big: new Array(100).fill(0) };
const weak = new WeakRef(target);
registry.register(target, "target");
const map = new WeakMap([[target, 1]]);
target = null;
await null;
for (let i = 0; i < 1000; i++) ({ i });
return typeof weak.deref();
