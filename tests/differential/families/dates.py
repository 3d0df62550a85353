"""Dates: texts of many forms, parts, arithmetic and output, all in UTC."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import fill, integer, items, probes

POOLS = {
    "y": items(
        "2026 ;; 1999 ;; 2000 ;; 2024 ;; 0099 ;; 0000 ;; 26 ;; 99 ;; 49 ;; 50 ;; 5 ;; 20260 ;; 12345 ;; 10000 ;; 275760"
    ),
    "mm": items("01 ;; 02 ;; 03 ;; 12 ;; 10 ;; 00 ;; 13 ;; 3 ;; 0 ;; 007"),
    "dd": items("01 ;; 05 ;; 15 ;; 28 ;; 29 ;; 30 ;; 31 ;; 32 ;; 00 ;; 5 ;; 0 ;; 99"),
    "h": items("00 ;; 09 ;; 10 ;; 12 ;; 13 ;; 23 ;; 24 ;; 25 ;; 9 ;; 0 ;; 1"),
    "mi": items("00 ;; 05 ;; 30 ;; 59 ;; 60 ;; 7"),
    "ms": items("0 ;; 5 ;; 50 ;; 123 ;; 1234 ;; 123456 ;; 123456789 ;; 1234567890 ;; 999999"),
    "frac": ("", "", "", ".<<ms>>", ",<<ms>>", "."),
    "month": items(
        "Jan ;; January ;; Feb ;; MAR ;; april ;; may ;; Sept ;; September ;; Dec. ;; december ;; Foo ;; Juneteenth ;; ja"
    ),
    "weekday": items("Thu ;; Thursday ;; thu. ;; Mon, ;; X"),
    "zone": (
        *(
            "",
            "",
            "Z",
            "z",
            " Z",
            " GMT",
            " UTC",
            "UTC",
            " EST",
            " PDT",
            " CET",
            " gmt",
            " UT",
            "+00:00",
            "+01:00",
            "-05:30",
        ),
        *(
            "+0200",
            "-0800",
            "+05",
            "+5",
            " +0200",
            " -0330",
            " GMT+0200",
            " GMT-8",
            " GMT+2:00",
            " UTC+1",
            " GMT+02:30",
            "+24:00",
        ),
        *(
            "+23:59",
            "+00:60",
            "-00:00",
            " (Coordinated Universal Time)",
            " GMT+0000 (Coordinated Universal Time)",
            "+12345",
            " +",
            "--",
        ),
    ),
    "time": (
        *("<<h>>:<<mi>>", "<<h>>:<<mi>>:<<mi>>", "<<h>>:<<mi>>:<<mi>><<frac>>", "<<h>>:<<mi>>:<<mi>>.<<ms>>", "<<h>>"),
        *(
            "<<h>>:<<mi>> AM",
            "<<h>>:<<mi>> PM",
            "<<h>>:<<mi>>:<<mi>> pm",
            "<<h>>:<<mi>>pm",
            "<<h>> PM",
            "<<h>>:<<mi>> a.m.",
            "<<h>>h",
        ),
        *(
            "T<<h>>:<<mi>>",
            "<<h>>.<<mi>>",
            "<<h>>::<<mi>>",
            "<<h>>:<<mi>>:<<mi>>:<<mi>>",
            "<<h>><<mi>>",
            "noon",
            ":<<mi>>",
            "<<h>>:",
        ),
    ),
    "day": (
        *(
            "<<y>>-<<mm>>-<<dd>>",
            "<<y>>-<<mm>>-<<dd>>",
            "<<y>>/<<mm>>/<<dd>>",
            "<<mm>>/<<dd>>/<<y>>",
            "<<dd>>/<<mm>>/<<y>>",
        ),
        *(
            "<<y>>-<<mm>>",
            "<<y>>",
            "<<dd>>.<<mm>>.<<y>>",
            "<<dd>>-<<mm>>-<<y>>",
            "<<month>> <<dd>>, <<y>>",
            "<<month>> <<dd>> <<y>>",
        ),
        *(
            "<<dd>> <<month>> <<y>>",
            "<<dd>>-<<month>>-<<y>>",
            "<<month>> <<y>>",
            "<<month>> <<dd>>",
            "<<y>> <<month>> <<dd>>",
        ),
        *(
            "<<weekday>> <<month>> <<dd>> <<y>>",
            "<<weekday>> <<dd>> <<month>> <<y>>",
            "<<y>><<mm>><<dd>>",
            "+00<<y>>-<<mm>>-<<dd>>",
        ),
        *(
            "-00<<y>>-<<mm>>-<<dd>>",
            "<<y>>-W10-<<mm>>",
            "<<mm>>/<<dd>>",
            "<<y>>.<<mm>>.<<dd>>",
            "<<y>>-<<mm>>-<<dd>>-<<mm>>",
            "(x) <<y>>-<<mm>>-<<dd>>",
        ),
        *(
            "<<dd>>th <<month>> <<y>>",
            "<<month>> <<dd>>th, <<y>>",
            "the <<dd>> of <<month>> <<y>>",
            "Q1 <<y>>",
            "<<y>> Q1",
            "<<month>>-<<dd>>-<<y>>",
        ),
    ),
    "between": ("T", "T", "T", " ", " ", "  ", "t", ", ", " at ", "", "-", "_", " T", "\u00a0", "(noon) "),
    "after": ("", "", "", "", "", " ", "\n", " junk", ")", " (comment (nested))", " (open", "!", "\u3000"),
    "before": ("", "", "", "", "", " ", "at ", "date: ", "\ufeff", "(a) ", "x1 ", "- ", "+"),
    "text": (
        *(
            "<<before>><<day>><<between>><<time>><<zone>><<after>>",
            "<<day>><<between>><<time>><<zone>>",
            "<<day>>",
            "<<day>><<zone>>",
        ),
        *(
            "<<day>> <<time>><<zone>>",
            "<<y>>-<<mm>>-<<dd>>T<<h>>:<<mi>>:<<mi>><<frac>><<zone>>",
            "<<time>> <<day>>",
            "<<before>><<day>><<after>>",
        ),
        *(
            "<<y>>-<<mm>>-<<dd>> <<h>>:<<mi>>:<<mi>><<frac>><<zone>>",
            "<<y>>-<<mm>>-<<dd>>T<<h>>:<<mi>><<zone>>",
            "<<time>>",
        ),
        *(
            "1772704800000",
            "1772704800",
            "today",
            "",
            "null",
            "NaN",
            "2026-03-05T10:00:00.000Z",
            "Thu Mar 05 2026 10:00:00 GMT+0100 (CET)",
        ),
        *(
            "Thu, 05 Mar 2026 10:00:00 GMT",
            "2026-03-05T10:00:00+01:00[Europe/Paris]",
            "20260305T100000Z",
            "2026-064",
            "Thursday, March 5, 2026",
        ),
        *(
            "3/5/2026, 10:00:00 AM",
            "05-Mar-26 10.00.00.000000 AM",
            "\u200e3/5/2026",
            "2026-03-05T24:00:00Z",
            "2026-03-05T24:00:01Z",
        ),
    ),
    "n": integer(-40, 70),
    "big": items(
        "0 ;; 1 ;; -1 ;; 1e12 ;; 1772704800000 ;; -62198755200000 ;; 8.64e15 ;; -8.64e15 ;; 8.64e15+1 ;; 951782400000 ;; NaN ;; Infinity ;; 1.9 ;; -1.9"
    ),
    "date": (
        *(
            "new Date(<<big>>)",
            "new Date(2026, <<n>>, <<n>>)",
            "new Date(2024, 1, 29, <<n>>, <<n>>, <<n>>)",
            "new Date('2026-03-05T10:20:30.456Z')",
        ),
        *(
            "new Date(Date.UTC(<<short>>, <<n>>))",
            "new Date(<<short>>, 0)",
            "new Date('<<good>>')",
            "new Date(null)",
            "new Date(undefined)",
            "new Date(true)",
        ),
        *(
            "new Date('')",
            "new Date([2026, 3])",
            "new Date(new Date(1e12))",
            "new Date({ valueOf: () => 5 })",
            "new Date(2020, 5)",
        ),
    ),
    "short": integer(-5, 120),
    "good": items(
        "2026-03-05 ;; 2026-03-05T10:00:00Z ;; 2024-02-29 12:30:00 ;; Mar 5, 2026 ;; 2000-12-31T23:59:59.999+05:30"
    ),
    "get": items(
        """
        getTime getDate getDay getMonth getFullYear getHours getMinutes getSeconds getMilliseconds getUTCDate getUTCDay
        getUTCMonth getUTCFullYear getUTCHours getTimezoneOffset toISOString toJSON toString toDateString toTimeString
        toUTCString valueOf getYear toGMTString
    """.replace(" ", "\n")
    ),
    "set": items(
        """
        setDate setMonth setFullYear setHours setMinutes setSeconds setMilliseconds setUTCDate setUTCMonth setUTCHours setTime setYear
    """.replace(" ", "\n")
    ),
}

TEMPLATES = items(r"""
    <<date>>.<<get>>()
    <<date>>
    (d => (d.<<set>>(<<n>>), d))(<<date>>)
    (d => (d.<<set>>(<<n>>, <<n>>), d))(<<date>>)
    (d => [d.<<set>>(NaN), d.<<set>>(<<n>>)])(<<date>>)
    Date.UTC(<<short>>, <<n>>, <<n>>, <<n>>)
    Date.UTC(2026)
    <<date>> - <<date>>
    <<date>> < <<date>>
    `${<<date>>}`
    <<date>> + 1
    +<<date>>
    JSON.stringify({ at: <<date>> })
    [<<date>>, <<date>>, <<date>>].sort((a, b) => a - b)
    Math.round((new Date("2026-03-29") - new Date("2026-03-01")) / 86400000)
    Array.from({ length: 4 }, (_, i) => new Date(Date.UTC(2026, 0, 31 + i * 30)).toISOString().slice(0, 10))
    (d => { d.setDate(d.getDate() + <<n>>); return d.toISOString().split("T")[0] })(new Date("<<good>>"))
    (d => `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, "0")}-${String(d.getDate()).padStart(2, "0")}`)(<<date>>)
    (d => d[Symbol.toPrimitive]("number"))(<<date>>)
    Object.prototype.toString.call(<<date>>)
    [Date.length, Date.name, typeof Date(), new Date(0) instanceof Date, Date.prototype.constructor === Date, Date.parse.length]
    new (class Day extends Date { label() { return this.toISOString().slice(0, 10) } })("<<good>>").label?.()
    new (class Day extends Date {})("<<good>>") instanceof Date
    structuredClone(<<date>>)
    Date.parse(new String("<<good>>"))
    Date.parse({ toString: () => "<<good>>" })
    Date.parse(Symbol("a"))
    Date.parse()
    Date.parse(2026)
    Date.parse(String(<<date>>))
    Date.parse(<<date>>.toUTCString())
    Object.getOwnPropertyNames(new Date(0))
    new Date(2026, 0, 1, 0, 0, 0, <<n>>).toISOString()
    Reflect.construct(Date, ["<<good>>"], Object).constructor.name
    isNaN(<<date>>)
    Math.floor((Date.UTC(2026, 2, 5) - Date.UTC(2026, 0, 1)) / 6.048e8)
""")


def program(random: Random) -> str:
    """Return a program that parses texts, beside some other expressions."""
    texts = tuple(f"Date.parse({text!r})" for text in (fill(random, "<<text>>", POOLS) for _ in range(14)))
    chosen = [text.replace("\\ufeff", "\ufeff") for text in texts]
    parsed = probes(random, ("[" + ", ".join(chosen) + "]",), {}, count=1)
    return parsed if random.random() < 0.6 else probes(random, TEMPLATES, POOLS)
