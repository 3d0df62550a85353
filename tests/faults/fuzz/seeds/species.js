class Strange extends Array {
  static get [Symbol.species]() { return function (n) { return { length: 0, constructor: Strange }; }; }
}
const strange = Strange.from([1, 2, 3]);
const out = [];
try { out.push(strange.map((x) => x)); } catch (error) { out.push(error.message); }
try { out.push(strange.concat([4]), strange.slice(1), strange.splice(0, 2)); } catch (error) { out.push(error.message); }
return out;
