const tag = (strings, ...values) => strings.raw.map((part, i) => part + (values[i] ?? "")).join("|");
const cached = () => ((s) => s)`x${1}y`;
return [tag`a${1}\n${"b"}c`, String.raw`\u{${41}}`, cached() === cached(), `${`${`deep`}`}`];
