"""URL, URLSearchParams, base64, structuredClone and other globals of the web."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "url": items(r"""
        "https://user:pw@example.com:8080/a/b/../c?x=1&y=a%20b#top" ;; "http://EXAMPLE.com" ;; "https://example.com:443/" ;; "ftp://h/p" ;; "mailto:a@b.c" ;; "data:text/plain,hi"
        "/relative?q=1" ;; "../up" ;; "//host/path" ;; "?only=query" ;; "#frag" ;; "not a url" ;; "" ;; "https://m\u00fcnchen.de/\u00e4?\u00f6=\u00fc" ;; "http://[::1]:3000/x" ;; "http://192.168.0.1.:80/"
        "https://example.com/a b?c d#e f" ;; "file:///C:/x/y" ;; "javascript:alert(1)" ;; "https://example.com/%7Efoo/%zz" ;; "HTTP://a.b/?a=1&a=2&b" ;; "http://a:b@/x" ;; "https://x.y:99999/"
    """),
    "base": items(
        r""" "https://base.org/dir/file?z=1#h" ;; "http://localhost:3000" ;; undefined ;; "https://a.b/c/" """
    ),
    "query": items(r"""
        "a=1&b=2&a=3" ;; "?q=hello+world&empty=&flag" ;; "%E4%BD%A0=x&bad=%zz" ;; { a: 1, b: "x y" } ;; [["k", "v"], ["k", "w"]] ;; new Map([["m", 1]]) ;; "" ;; "a=b=c&&=x" ;; "e=\u00e9&plus=1+1"
    """),
    "key": items('"a" ;; "b" ;; "k" ;; "missing" ;; "q"'),
    "part": items("href ;; origin ;; protocol ;; username ;; host ;; hostname ;; port ;; pathname ;; search ;; hash"),
    "text": items(r""" "" ;; "a" ;; "ab" ;; "abc" ;; "hello, world" ;; "\u00e9" ;; "\u20ac" ;; "\0\xff" """),
    "coded": items(
        r""" "" ;; "YQ==" ;; "YQ" ;; "YWI=" ;; "YWJj" ;; " Y W I = " ;; "a" ;; "====" ;; "YW-_" ;; "\u00e9" ;; "aGVsbG8sIHdvcmxk" """
    ),
    "n": integer(0, 3),
}

TEMPLATES = items(r"""
    new URL(<<url>>, <<base>>).href
    new URL(<<url>>, <<base>>).<<part>>
    new URL(<<url>>).<<part>>
    JSON.stringify(new URL(<<url>>, <<base>>))
    String(new URL(<<url>>, <<base>>))
    URL.canParse(<<url>>, <<base>>)
    (u => { u.<<part>> = "changed"; return u.href })(new URL(<<url>>, "https://b.c"))
    (u => { u.port = "<<n>>"; u.hash = ""; u.pathname = "/p q/\u00e9"; return u.href })(new URL(<<url>>, "https://b.c"))
    (u => { u.searchParams.set("a", "x y"); u.searchParams.append("b", "&="); u.searchParams.delete("q"); return u.href })(new URL(<<url>>, "https://b.c"))
    (u => Object.fromEntries(u.searchParams))(new URL(<<url>>, "https://b.c"))
    [...new URL(<<url>>, "https://b.c").searchParams.keys()]
    new URL(<<url>>, "https://b.c") instanceof URL
    Object.prototype.toString.call(new URL("https://x.y"))
    String(new URLSearchParams(<<query>>))
    [...new URLSearchParams(<<query>>)]
    new URLSearchParams(<<query>>).get(<<key>>)
    new URLSearchParams(<<query>>).getAll(<<key>>)
    [new URLSearchParams(<<query>>).has(<<key>>), new URLSearchParams(<<query>>).size]
    (p => { p.sort(); return p.toString() })(new URLSearchParams(<<query>>))
    (p => { p.append(<<key>>, <<text>>); p.set("z", <<n>>); p.delete("b"); return p.toString() })(new URLSearchParams(<<query>>))
    (p => { const seen = []; p.forEach((v, k) => seen.push(k + "=" + v)); return seen })(new URLSearchParams(<<query>>))
    Object.fromEntries(new URLSearchParams(<<query>>))
    JSON.stringify(new URLSearchParams(<<query>>))
    btoa(<<text>>)
    atob(<<coded>>)
    atob(btoa(<<text>>)) === <<text>>
    encodeURIComponent(<<text>>)
    decodeURIComponent(encodeURIComponent(<<text>>))
    structuredClone({ u: undefined, d: new Date(0), r: /x/gi, n: [1, , 3], m: new Map([[{ k: 1 }, new Set([1n])]]), e: new RangeError("r"), b: new Uint8Array([1]), o: Object(1) })
    (o => { o.self = o; const c = structuredClone(o); return [c.self === c, c !== o] })({ a: 1 })
    structuredClone(class {})
    structuredClone(Symbol("s"))
    structuredClone({ get a() { return 1 }, [Symbol("hidden")]: 2 })
    structuredClone(Object.create({ inherited: 1 }, { own: { value: 1, enumerable: true } }))
    structuredClone([1, 2, 3].values())
    structuredClone(new (class A { x = 1 })())
    [typeof crypto.randomUUID(), crypto.randomUUID().length, crypto.getRandomValues(new Uint8Array(4)).length]
    /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())
    typeof performance.now()
    escape(<<text>>)
    new URL("https://x.y/?a=1").searchParams.toString()
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
