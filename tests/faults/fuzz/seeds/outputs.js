text("plain"); text({ a: 1 }); text(new Error("shown")); text(Symbol.iterator);
json([1, undefined, () => 1]); json(new Map([["k", 1]]));
image({ type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" });
console.log("a", 1, null, [2]); console.table([{ a: 1 }]); console.assert(false, "no", 1);
try { image({ data: 1 }); } catch (error) { console.warn(error.message); }
