const buffer = new ArrayBuffer(8, { maxByteLength: 64 });
const bytes = new Uint8Array(buffer);
bytes.set([1, 2, 3]);
buffer.resize(16);
const view = new DataView(buffer);
view.setFloat64(8, Math.PI, true);
class Odd extends Uint8Array { static get [Symbol.species]() { return Int16Array; } }
const odd = new Odd([1, 2, 3]).map((x) => x * 300);
buffer.resize(4);
return [bytes.length, odd, view.byteLength, [...bytes]];
