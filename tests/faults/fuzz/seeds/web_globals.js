const url = new URL("../b?x=1&x=2#f", "https://user:pw@example.org:8080/a/c");
url.searchParams.append("é", "😀");
const bytes = new TextEncoder().encode("a\ud800é😀");
const text_ = new TextDecoder("utf-8", { fatal: false }).decode(bytes);
const copy = structuredClone({ d: new Date(0), m: new Map([[1, new Set([2])]]), r: /x/g, b: new Uint8Array([1]).buffer, e: new RangeError("r") });
return [url.href, [...url.searchParams], [...bytes], text_, copy, atob(btoa("hi")), crypto.randomUUID().length, URL.canParse("x:")];
