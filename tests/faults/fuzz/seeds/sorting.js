const rows = Array.from({ length: 50 }, (_, i) => ({ i, key: (i * 7919) % 13 }));
rows.sort((a, b) => a.key - b.key || a.i - b.i);
const odd = [5, 1, 4].sort(() => { rows.length = 1; return -1; });
const grouped = Object.groupBy(rows, ({ key }) => key % 2 ? "odd" : "even");
return [rows.length, odd, grouped, [3, 1, 2].toSorted(), [1, 2, 3].with(1, 9), [, 1, undefined].toSpliced(0, 1)];
