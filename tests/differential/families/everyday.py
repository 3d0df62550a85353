"""Everyday work with rows: grouping, joining, sorting, formatting and reading of texts, as models write it."""

from __future__ import annotations

import json
from random import Random

from tests.differential.grammar import SHOW, fill, items

NAMES = ("Ada Lovelace", "Bob O'Neil", "Chloé", "dan", "Eve-Marie", "", "Zoë Müller", "李雷", "x" * 30)
CITIES = ("Paris", "Berlin", "paris", "", None, "São Paulo", "N/A")
DATES = (
    *("2026-03-05", "2026-03-05T10:00:00Z", "2026-02-29", "2025-12-31 23:59:59", "0000-00-00", "", None, "03/05/2026"),
    *(
        "2026-03-05T10:00:00+02:00",
        "Mar 5, 2026",
        "5 March 2026 10:30",
        "2026-3-5",
        "20260305",
        1772704800000,
        "tomorrow",
    ),
)
AMOUNTS = (0, 12.5, -3, 1999.99, "42", "1,234.50", "$7", None, "abc", 1e6, 0.1, 2.675, "  8 ")


def rows(random: Random) -> str:
    """Return rows of data as JSON."""
    return json.dumps(
        [
            {
                "id": number,
                "name": random.choice(NAMES),
                "city": random.choice(CITIES),
                "date": random.choice(DATES),
                "amount": random.choice(AMOUNTS),
                "tags": random.sample(["a", "b", "urgent", "B"], random.randint(0, 3)),
                "done": random.choice([True, False, None]),
                "owner": random.choice([{"id": 1, "team": {"name": "core"}}, {"id": 2}, None]),
            }
            for number in range(random.randint(0, 7))
        ],
        ensure_ascii=False,
    )


POOLS = {
    "field": items("city ;; name ;; done ;; amount ;; date"),
    "text": items(r"""
        "id,name,score\n1,Ada,9.5\n2,\"Bob, Jr\",7\n\n3,Eve," ;; "ERROR 2026-03-05T10:00:00Z db timeout=30s user=7\nINFO 2026-03-05T10:00:01Z ok\nWARN disk 91%"
        "# Title\n\n- [x] done\n- [ ] open\n\n```js\ncode()\n```\nSee [link](https://a.b/c?d=1#e)." ;; "To: a@b.c, d.e@f.org; x@y\nSubject: =?\r\n\r\nBody" ;; "key: value\nlist:\n  - one\n  - two\nn: 5"
        "The quick brown fox. The lazy dog! the END? 3.14 and 1,000,000" ;; "<ul><li class='a'>One &amp; two</li><li>Three</li></ul>" ;; "v1.2.3 v1.10.0 v1.9.9-beta.1" ;; ""
    """),
    "step": items(r"""
        rows.reduce((acc, r) => { (acc[r.<<field>>] ??= []).push(r.id); return acc }, {})
        Object.entries(rows.reduce((acc, r) => ({ ...acc, [r.<<field>>]: (acc[r.<<field>>] || 0) + 1 }), {})).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
        rows.map((r) => Number(String(r.amount ?? "").replace(/[$,\s]/g, ""))).filter((n) => !Number.isNaN(n)).reduce((a, b) => a + b, 0).toFixed(2)
        rows.map((r) => parseFloat(r.amount)).map((n) => (isNaN(n) ? null : Math.round(n * 100) / 100))
        rows.filter((r) => !isNaN(new Date(r.date))).map((r) => new Date(r.date).toISOString().slice(0, 10)).sort()
        rows.map((r) => new Date(r.date).getTime())
        rows.map((r) => { const d = new Date(r.date); return isNaN(d) ? "invalid" : `${d.getUTCFullYear()}-${String(d.getUTCMonth() + 1).padStart(2, "0")}` })
        rows.filter((r) => Date.parse(r.date) > Date.parse("2026-01-01")).map((r) => r.id)
        rows.filter((r) => r.date).sort((a, b) => String(a.date) < String(b.date) ? -1 : String(a.date) > String(b.date) ? 1 : a.id - b.id).map((r) => r.id)
        rows.map((r) => Math.floor((Date.UTC(2026, 3, 1) - new Date(r.date)) / 86400000))
        rows.map(({ owner: { team: { name = "none" } = {} } = {} }) => name)
        rows.map((r) => r.owner?.team?.name ?? "unassigned")
        [...new Set(rows.flatMap((r) => r.tags.map((t) => t.toLowerCase())))].sort()
        rows.map((r) => r.name.split(/\s+/).map((w) => w.slice(0, 1).toUpperCase()).join(""))
        rows.map((r) => r.name.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, ""))
        rows.map((r) => (r.name.length > 10 ? r.name.slice(0, 9) + "\u2026" : r.name).padEnd(12) + "|" + String(r.amount ?? "-").padStart(9)).join("\n")
        Object.fromEntries(rows.map((r) => [r.id, { ...r, tags: r.tags.length }]))
        JSON.stringify(rows.map(({ tags, owner, ...rest }) => rest), null, 2)
        JSON.stringify(rows, (k, v) => (v === null ? undefined : v))
        rows.some((r) => r.done) && rows.every((r) => r.tags.length)
        ((groups) => Object.keys(groups).map((k) => ({ k, total: groups[k].reduce((s, r) => s + (+r.amount || 0), 0) })))(rows.reduce((g, r) => ((g[r.city ?? "none"] ||= []).push(r), g), {}))
        Array.from({ length: Math.ceil(rows.length / 2) }, (_, i) => rows.slice(i * 2, i * 2 + 2).map((r) => r.id))
        rows.map((r, i) => ({ ...r, rank: i + 1 })).find((r) => r.amount > 10)?.rank
        Math.max(...rows.map((r) => Number(r.amount)).filter(Number.isFinite))
        new Map(rows.map((r) => [r.city, r])).size
        rows.toSorted((a, b) => b.id - a.id).map((r) => r.id)
        rows.map((r) => [r.id, r.name, r.city].map((c) => (/[",\n]/.test(c) ? `"${String(c).replaceAll('"', '""')}"` : c ?? "")).join(",")).join("\n")
        await Promise.all(rows.map(async (r) => { if (r.done === null) throw new Error("row " + r.id); return r.id })).catch((e) => e.message)
        (await Promise.allSettled(rows.map((r) => (r.done ? Promise.resolve(r.id) : Promise.reject(new Error(r.name)))))).map((s) => s.value ?? s.reason.message)
        ((a) => [...a].sort((x, y) => x - y)[Math.floor(a.length / 2)])(rows.map((r) => Number(r.amount)).filter((n) => !isNaN(n)))
        rows.reduce((best, r) => (r.name.length > (best?.name.length ?? -1) ? r : best), null)?.id
        structuredClone(rows).map((r) => r.tags.splice(0, 1)[0])
        rows.length ? rows.at(-1).tags.includes("urgent") : "empty"
        text.split("\n").filter(Boolean).map((l) => l.split(",").map((c) => c.trim()))
        text.split(/\r?\n/).slice(1).map((l) => l.match(/("[^"]*"|[^,]*)(,|$)/g)?.map((c) => c.replace(/,$/, "").replace(/^"|"$/g, "")))
        [...text.matchAll(/(\w+)=(\w+)/g)].map(([, k, v]) => ({ k, v }))
        [...text.matchAll(/[\w.]+@[\w.]+/g)].map((m) => [m[0], m.index])
        text.match(/\d+(?:[.,]\d+)*/g)
        Object.entries((text.toLowerCase().match(/\b[a-z]+\b/g) ?? []).reduce((m, w) => m.set(w, (m.get(w) ?? 0) + 1), new Map()))
        [...(text.toLowerCase().match(/[a-z]+/g) ?? []).reduce((m, w) => m.set(w, (m.get(w) ?? 0) + 1), new Map())].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 3)
        text.replace(/<[^>]+>/g, "").replace(/&amp;/g, "&")
        text.replace(/\[([^\]]+)\]\(([^)]+)\)/g, "$1 <$2>")
        text.split(/(?<=[.!?])\s+/)
        text.split(/\s+/).filter((v) => /^v?\d+\.\d+/.test(v)).sort((a, b) => { const [x, y] = [a, b].map((v) => v.replace(/^v/, "").split(/[.-]/).map(Number)); return x[0] - y[0] || x[1] - y[1] || x[2] - y[2] })
        Object.fromEntries(text.split("\n").map((l) => l.match(/^(\w+):\s*(.*)$/)).filter(Boolean).map(([, k, v]) => [k, v]))
        text.split("\n").map((l, i) => `${i + 1}: ${l}`).slice(0, 3).join("\n")
        text.replace(/(^|\s)(\w)/g, (m, s, c) => s + c.toUpperCase())
        (text.match(/^- \[[ x]\]/gm) ?? []).length
        encodeURIComponent(text).length
        btoa(unescape(encodeURIComponent(text))).slice(0, 40)
        text.search(/timeout|disk/)
        [...text].filter((c) => "aeiou".includes(c)).length
        text.split("").reverse().join("").slice(0, 20)
    """),
}


def program(random: Random) -> str:
    """Return a program of some results from the same rows and text."""
    steps = [fill(random, random.choice(POOLS["step"]), POOLS) for _ in range(5)]
    lines = "".join(f"out.push(await probe(async () => ({each})));\n" for each in steps)
    return f"const rows = {rows(random)};\nconst text = {fill(random, '<<text>>', POOLS)};\nconst out = [];\n{lines}return out;\n{SHOW}"
