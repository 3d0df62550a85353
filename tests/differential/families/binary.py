"""Typed arrays, DataView, ArrayBuffer, BigInt, Symbol, bits, and clones of them."""

from __future__ import annotations

from random import Random

from tests.differential.grammar import integer, items, probes

POOLS = {
    "type": items(
        "Uint8Array ;; Int8Array ;; Uint8ClampedArray ;; Int16Array ;; Uint16Array ;; Int32Array ;; Uint32Array ;; Float32Array ;; Float64Array"
    ),
    "numbers": items(
        "[1, 2, 3] ;; [255, 256, -1] ;; [1.5, -1.5, NaN] ;; [] ;; [1e10, -1e10] ;; ['7', null, true] ;; new Set([4, 5]) ;; 3 ;; [300, 2.5, 0.5]"
    ),
    "array": items(
        "new <<type>>(<<numbers>>) ;; <<type>>.from(<<numbers>>) ;; <<type>>.of(5, 4, 3, 2) ;; new <<type>>(new ArrayBuffer(16), 8) ;; new <<type>>([9, 8, 7, 6]).subarray(1, 3)"
    ),
    "n": integer(-3, 6),
    "get": items("Uint8 ;; Int8 ;; Uint16 ;; Int16 ;; Uint32 ;; Int32 ;; Float32 ;; Float64"),
    "big": items(
        "0n ;; 1n ;; -1n ;; 2n ** 64n ;; -(2n ** 63n) ;; 123456789012345678901234567890n ;; BigInt('0xff') ;; BigInt(2 ** 53) ;; 10n ;; -7n ;; BigInt.asUintN(64, -1n)"
    ),
    "op": items("+ ;; - ;; * ;; / ;; % ;; ** ;; & ;; | ;; ^ ;; << ;; >> ;; < ;; == ;; ==="),
    "small": items("1n ;; 2n ;; 3n ;; -2n ;; 0n ;; 5 ;; '3'"),
}

TEMPLATES = items(r"""
    <<array>>
    Array.from(<<array>>)
    <<array>>.map((x) => x * 2)
    <<array>>.filter((x) => x > 2)
    <<array>>.sort()
    <<array>>.toSorted((a, b) => b - a)
    <<array>>.toReversed()
    <<array>>.slice(<<n>>, <<n>>)
    <<array>>.subarray(<<n>>).length
    <<array>>.at(<<n>>)
    <<array>>.fill(<<n>>, 1)
    <<array>>.indexOf(3)
    <<array>>.includes(NaN)
    <<array>>.join("-")
    <<array>>.reduce((a, b) => a + b, 0)
    <<array>>.copyWithin(0, 1)
    (a => { a.set([1, 2], <<n>>); return a })(<<array>>)
    (a => { a[99] = 1; a.x = 2; return [a.length, a.x, a[99]] })(<<array>>)
    [<<array>>.byteLength, <<array>>.byteOffset, <<array>>.BYTES_PER_ELEMENT, <<array>>.buffer.byteLength]
    Object.prototype.toString.call(<<array>>)
    JSON.stringify(<<array>>)
    String(<<array>>)
    [...<<array>>.entries()]
    Object.keys(<<array>>)
    structuredClone(<<array>>)
    new <<type>>(<<array>>)
    (b => { const v = new DataView(b); v.set<<get>>(0, 258.7); return new Uint8Array(b) })(new ArrayBuffer(8))
    (b => { const v = new DataView(b); v.set<<get>>(1, -2, true); return v.get<<get>>(<<n>>, true) })(new ArrayBuffer(12))
    new DataView(new Uint8Array([0, 0, 192, 63]).buffer).getFloat32(0, true)
    new DataView(new ArrayBuffer(8)).getInt16(<<n>>)
    new ArrayBuffer(8).slice(<<n>>, <<n>>).byteLength
    ArrayBuffer.isView(<<array>>)
    new Uint8Array(new Uint16Array([1, 513]).buffer)
    <<big>> <<op>> <<small>>
    <<big>> <<op>> <<big>>.constructor.asIntN(5, 9n)
    String(<<big>>)
    (<<big>>).toString(16)
    Number(<<big>>)
    BigInt(<<n>>)
    BigInt("<<n>>")
    BigInt(1.5)
    BigInt.asIntN(8, <<big>>)
    BigInt.asUintN(8, <<big>>)
    -(<<big>>)
    ~(<<big>>)
    +(<<big>>)
    typeof <<big>>
    [<<big>> == 1, <<big>> < 2, <<big>> > 1.5, !<<big>>]
    parseInt(String(<<big>>).slice(0, 5))
    Math.max(1, <<big>>)
    [3n, 1n, 2n, 10n].sort()
    [3n, 1, 2n].sort((a, b) => (a < b ? -1 : 1))
    new BigInt64Array([1n, -1n, 2n ** 63n])
    new BigUint64Array(2).fill(-1n)
    new BigInt64Array([1])
    JSON.stringify({ n: <<big>> }, (k, v) => (typeof v === "bigint" ? v.toString() : v))
    `${<<big>>}`
    Symbol("d").toString()
    [Symbol("d").description, Symbol().description, Symbol.for("k") === Symbol.for("k"), Symbol.keyFor(Symbol.for("k")), typeof Symbol.iterator]
    ({ [Symbol.toPrimitive]: (hint) => hint }) + ""
    `${{ [Symbol.toPrimitive]: (hint) => hint }}`
    +{ [Symbol.toPrimitive]: () => 7 }
    Object.getOwnPropertySymbols({ [Symbol("a")]: 1, b: 2 }).map(String)
    Symbol("x") + 1
    Object(Symbol("o")).toString()
    Array.from(new TextEncoder().encode("h\u00e9\u20ac\u{1f600}\ud800"))
    new TextDecoder().decode(new Uint8Array([104, 195, 169, 255, 240, 159, 152, 128]))
    new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([255]))
    new TextDecoder("utf-16le").decode(new Uint8Array([65, 0, 66, 0]))
    Array.from(new Uint8Array([1, 2, 255]), (b) => b.toString(16).padStart(2, "0")).join("")
    btoa(String.fromCharCode(...new Uint8Array([0, 127, 255])))
    Uint8Array.from(atob("AH//"), (c) => c.charCodeAt(0))
""")


def program(random: Random) -> str:
    return probes(random, TEMPLATES, POOLS)
