const line = "2026-01-02 k=v; k2=v2 😀";
const { groups } = /(?<year>\d{4})-(?<month>\d\d)/.exec(line);
const pairs = [...line.matchAll(/(\w+)=(\w+)/g)].map(([, key, value]) => [key, value]);
const sticky = /k/y; sticky.lastIndex = 11;
return [{ ...groups }, Object.fromEntries(pairs), sticky.test(line), line.replace(/\p{Emoji_Presentation}/u, "$&!"), /^(a+)+$/.test("aaaaaaaaaaaab")];
