store("key", { a: [1, 2, { b: null }] });
store("other", undefined);
const back = await load("key");
back.a.push(new Date(0));
json(back);
try { store(5, 1); } catch (error) { text(error.message); }
return back;
