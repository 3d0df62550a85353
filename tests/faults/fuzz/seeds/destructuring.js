const { a = 1, b: { c: [d, , ...e] = [] } = {}, ["f" + 1]: g = a, ...rest } = { b: { c: [1, 2, 3, 4] }, f1: 9, z: 0 };
let x = 1, y = 2;
[x, y] = [y, x];
const f = ({ p = 1, q } = {}, [r] = [p], ...s) => [p, q, r, s];
return { a, d, e, g, rest, x, y, f: f({ q: 2 }, undefined, 3) };
