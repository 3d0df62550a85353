let s = "x";
for (let i = 0; i < 16; i++) s += s;
const parts = s.split("").map((c, i) => c + i).join(",");
text(parts.slice(0, 50));
store("parts", parts);
return [(await load("parts")).length, (await load("nothing")) === undefined];
