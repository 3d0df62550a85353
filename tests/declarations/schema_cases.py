"""JSON Schemas, with snippets that must and must not compile against their type `T`, and comments on properties.

A snippet that begins with `=` is a value assigned to `T`; others are statements that use `declare const v: T`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_04 = "http://json-schema.org/draft-04/schema#"
STRING, NUMBER, INTEGER, NULL = ({"type": kind} for kind in ("string", "number", "integer", "null"))


@dataclass(frozen=True, slots=True)
class Case:
    """Return a case.

    Attributes:
        comments: regular expressions for the JSDoc of properties.
        of_input: True for the schema of values that programs give.
    """

    name: str
    schema: Any
    accepts: list[str]
    refuses: list[str] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)
    of_input: bool = False


def properties(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def all_required(**members: Any) -> dict[str, Any]:
    return {**properties(**members), "required": list(members)}


def closed(**members: Any) -> dict[str, Any]:
    return {**all_required(**members), "additionalProperties": False}


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def nested(levels: int, leaf: Any) -> Any:
    schema = leaf
    for _ in range(levels):
        schema = all_required(k=schema)
    return schema


def nested_value(levels: int, leaf: str) -> str:
    return "=" + "{k:" * levels + leaf + "}" * levels


HOSTILE = "*/ declare const PWNED: 1; /* \u2028declare const PWNED: 2;\r\u202e\u2066\u200b `${PWNED}` \" ' \\ \x00 end"

REFERENCES = [
    Case(
        "a list that refers to its root",
        all_required(value=NUMBER, next={"anyOf": [{"$ref": "#"}, NULL]}),
        ["={value:1,next:null}", "={value:1,next:{value:2,next:null}}", "const n:number|undefined=v.next?.next?.value"],
        ["={value:1}", "={value:1,next:{value:'2',next:null}}", "={value:1,next:{value:2}}"],
    ),
    Case(
        "a root that is met only through another definition",
        {**properties(sub=ref("R")), "$defs": {"R": {"allOf": [{"$ref": "#"}, all_required(n=NUMBER)]}}},
        ["={}", "={sub:{n:1}}", "={sub:{n:1,sub:{n:2}}}"],
        ["={sub:{}}", "={sub:{n:1,sub:{}}}"],
    ),
    Case(
        "three definitions in a ring",
        {
            **ref("A"),
            "$defs": {"A": all_required(b=ref("B")), "B": properties(c=ref("C")), "C": properties(a=ref("A"))},
        },
        ["={b:{}}", "={b:{c:{a:{b:{}}}}}"],
        ["={}", "={b:{c:{a:{}}}}", "={b:{c:{a:{b:{c:1}}}}}"],
    ),
    Case(
        "JSON itself, as a definition",
        {
            **ref("Json"),
            "$defs": {
                "Json": {
                    "anyOf": [
                        {"type": ["string", "number", "boolean", "null"]},
                        array(ref("Json")),
                        {"type": "object", "additionalProperties": ref("Json")},
                    ]
                }
            },
        },
        ["=null", "=[1,['x',{a:[true]}]]", "={a:{b:[{}]}}"],
        ["=undefined", "={a:()=>1}", "=[Symbol()]"],
    ),
    Case(
        "arrays in arrays without end",
        {**ref("L"), "$defs": {"L": array(ref("L"))}},
        ["=[]", "=[[],[[]]]"],
        ["=[1]", "=[[1]]", "={}"],
    ),
    Case("a definition that is itself", {**ref("A"), "$defs": {"A": ref("A")}}, ["=1", "={a:1}", "=null"]),
    Case(
        "two definitions that are each other",
        {**properties(a=ref("A")), "$defs": {"A": ref("B"), "B": {"anyOf": [ref("A")]}}},
        ["={}", "={a:1}"],
        ["=1"],
    ),
    Case(
        "dangling references",
        {**all_required(a=ref("Nope"), b={"$ref": "#/properties/zzz/items/3"}, c={"$ref": "#nowhere"}, d=STRING)},
        ["={a:1,b:null,c:[],d:''}"],
        ["={a:1,b:null,c:[],d:1}", "={}"],
    ),
    Case(
        "remote references",
        all_required(
            a={"$ref": "https://example.invalid/a.json"}, b={"$ref": "other.json#/x"}, c={"$ref": "file:///etc/x"}
        ),
        ["={a:1,b:{},c:''}"],
        ["={a:1,b:2}"],
    ),
    Case(
        "a remote reference beside what is known",
        {"$ref": "https://example.invalid/base.json", **all_required(a=STRING)},
        ["={a:''}"],
        ["={a:1}", "={}"],
    ),
    Case(
        "references that are no references",
        all_required(a={"$ref": 1}, b={"$ref": None}, c={"$ref": ["#"]}, d={"$ref": ""}),
        ["={a:1,b:2,c:3,d:{a:1,b:2,c:3,d:{a:1,b:1,c:1,d:{} as any}}}"],
        ["={}"],
    ),
    Case(
        "$dynamicRef, which only a validator can follow",
        {
            "$dynamicAnchor": "node",
            **all_required(data=STRING, children=array({"$dynamicRef": "#node"})),
        },
        ["={data:'',children:[{data:'',children:[]}]}"],
        ["={data:1,children:[]}", "={data:''}", "={data:'',children:{}}"],
    ),
    Case(
        "$dynamicRef does not narrow what it stands beside",
        {"$dynamicRef": "#meta", "properties": {"a": STRING}, "$dynamicAnchor": "meta"},
        ["={a:''}", "={b:1}", "={}"],
    ),
    Case(
        "$recursiveRef of draft 2019-09",
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            **all_required(n=NUMBER, sub={"$recursiveRef": "#"}),
        },
        ["={n:1,sub:{n:2,sub:null}}"],
        ["={n:'1',sub:{}}", "={sub:{}}"],
    ),
    Case(
        "$dynamicAnchor as the target of a plain reference",
        {**all_required(a={"$ref": "#x"}), "$defs": {"d": {"$dynamicAnchor": "x", "type": "number"}}},
        ["={a:1}"],
        ["={a:''}"],
    ),
    Case(
        "one $anchor in two resources",
        {
            "$id": "https://schemas.example/root",
            **all_required(a={"$ref": "child#name"}, b={"$ref": "#name"}),
            "$defs": {
                "A": {"$id": "child", "allOf": [{"$anchor": "name", "type": "number"}]},
                "B": {"$anchor": "name", "type": "string"},
            },
        },
        ["={a:1,b:''}"],
        ["={a:'',b:''}", "={a:1,b:1}"],
    ),
    Case(
        "$anchor deep inside",
        all_required(a={"$ref": "#deep"}, b=properties(c=array({"$anchor": "deep", "enum": ["x", "y"]}))),
        ["={a:'x',b:{c:['y']}}"],
        ["={a:'z',b:{}}", "={a:'x',b:{c:['z']}}"],
    ),
    Case(
        "draft-07 $id as an anchor",
        {
            "$schema": DRAFT_07,
            **all_required(a={"$ref": "#item"}),
            "definitions": {"I": {"$id": "#item", "type": "null"}},
        },
        ["={a:null}"],
        ["={a:1}"],
    ),
    Case(
        "references relative to an $id",
        {
            "$id": "https://example.com/root.json",
            **all_required(a={"$ref": "item.json"}, b={"$ref": "https://example.com/item.json#/$defs/inner"}),
            "$defs": {
                "i": {"$id": "item.json", **all_required(x={"$ref": "#/$defs/inner"}), "$defs": {"inner": NUMBER}}
            },
        },
        ["={a:{x:1},b:2}"],
        ["={a:{x:''},b:2}", "={a:{x:1},b:''}"],
    ),
    Case(
        "$id of the inner resource is what # means there",
        {
            **all_required(a=ref("inner"), r={"type": "boolean"}),
            "$defs": {"inner": {"$id": "urn:inner", **properties(n=NUMBER, again={"$ref": "#"})}},
        },
        ["={a:{n:1,again:{n:2}},r:true}"],
        ["={a:{again:{n:''}},r:true}", "={a:{again:{r:true}},r:true}"],
    ),
    Case(
        "escaped and encoded pointers",
        {
            **all_required(a={"$ref": "#/$defs/a~1b~0c"}, b={"$ref": "#/$defs/%25%20%22"}),
            "$defs": {"a/b~c": NUMBER, '% "': NULL},
        },
        ["={a:1,b:null}"],
        ["={a:null,b:null}", "={a:1,b:1}"],
    ),
    Case(
        "a pointer into an array",
        {
            **all_required(a={"$ref": "#/allOf/0/anyOf/1"}),
            "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["z"]}]}],
        },
        ["={a:{z:1}}"],
        ["={a:{}}"],
    ),
    Case(
        "what stands beside a reference counts in 2020-12",
        {**all_required(a={**ref("A"), **all_required(y=NUMBER)}), "$defs": {"A": all_required(x=NUMBER)}},
        ["={a:{x:1,y:1}}"],
        ["={a:{x:1}}", "={a:{y:1}}"],
    ),
    Case(
        "what stands beside a reference does not count in draft-07",
        {
            "$schema": DRAFT_07,
            **all_required(a={"$ref": "#/definitions/A", "type": "number", "required": ["q"]}),
            "definitions": {"A": all_required(x=NUMBER)},
        },
        ["={a:{x:1}}"],
        ["={a:{}}", "={a:1}"],
    ),
    Case(
        "the description beside a reference, and that of its target",
        {
            **properties(a={**ref("A"), "description": "own words"}, b=ref("A")),
            "$defs": {"A": {"type": "string", "description": "shared words"}},
        },
        ["={a:'',b:''}"],
        ["={a:1}"],
        {"a": "own words", "b": "shared words"},
    ),
    Case(
        "definitions whose names make the same identifier, or none",
        {
            **all_required(a=ref("my-def"), b=ref("my_def"), c=ref("日本"), d=ref("1"), e=ref("string")),
            "$defs": {
                name: {**all_required(**{f"k{n}": array(ref(name))}), "description": "long " * 10}
                for n, name in enumerate(["my-def", "my_def", "日本", "1", "string"])
            },
        },
        ["={a:{k0:[]},b:{k1:[{k1:[]}]},c:{k2:[]},d:{k3:[]},e:{k4:[]}}"],
        ["={a:{k0:[]},b:{k0:[]},c:{k2:[]},d:{k3:[]},e:{k4:[]}}", "={a:{k0:[]},b:{k1:[]},c:{k2:[]},d:{k3:[]},e:''}"],
    ),
    Case(
        "a recursive definition that is hostile by name",
        {
            **properties(a=ref("x*~1; declare const PWNED: 1")),
            "$defs": {"x*/; declare const PWNED: 1": properties(n=ref("x*~1; declare const PWNED: 1"))},
        },
        ["={a:{n:{n:{}}}}"],
        ["={a:{n:1}}", "PWNED"],
    ),
]

OBJECTS = [
    Case(
        "an object without anything",
        {"type": "object", "additionalProperties": False},
        ["={}"],
        ["={a:1}", "=''", "=null"],
    ),
    Case(
        "a closed empty object inside",
        all_required(a={"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
        ["={a:{}}"],
        ["={a:{b:1}}", "={a:1}", "={}"],
    ),
    Case(
        "unevaluatedProperties beside allOf leaves it open",
        {"allOf": [all_required(a=STRING)], "properties": {"b": NUMBER}, "unevaluatedProperties": False},
        ["={a:'',b:1}", "={a:''}"],
        ["={b:1}", "={a:'',b:''}", "={a:'',c:1}"],
    ),
    Case(
        "unevaluatedProperties beside a condition leaves its members",
        {
            **properties(foo=STRING),
            "unevaluatedProperties": False,
            "if": {"properties": {"foo": {"const": "then"}}, "required": ["foo"]},
            "then": {"properties": {"bar": STRING}, "required": ["bar"]},
            "else": {"properties": {"baz": STRING}},
        },
        ["={foo:'then',bar:'x'}", "={baz:'x'}", "={}"],
        ["={foo:1}", "={other:1}"],
    ),
    Case(
        "unevaluatedProperties beside dependentSchemas leaves their members",
        {
            **properties(foo=STRING),
            "unevaluatedProperties": False,
            "dependentSchemas": {"foo": {"properties": {"bar": {"const": "bar"}}, "required": ["bar"]}},
        },
        ["={foo:'x',bar:'bar'}", "={}"],
        ["={other:1}"],
    ),
    Case(
        "unevaluatedProperties with a type",
        {"type": "object", "unevaluatedProperties": NUMBER},
        ["={a:1}", "={}"],
        ["={a:''}"],
    ),
    Case(
        "if, then and else do not narrow",
        {
            **properties(a=STRING, b=NUMBER),
            "if": all_required(a={"const": "x"}),
            "then": {"required": ["b"]},
            "else": False,
        },
        ["={}", "={a:'x',b:1}", "={a:'y'}"],
        ["={a:1}", "={b:''}"],
    ),
    Case("not does not narrow", {"type": "object", "not": {"required": ["a"]}}, ["={}", "={b:1}"], ["=1"]),
    Case("not anything", all_required(a={"not": {}}), ["={a:1 as never}"], ["={}"]),
    Case(
        "dependentRequired",
        {**properties(card=STRING, address=STRING), "dependentRequired": {"card": ["address"]}},
        ["={}", "={address:''}", "={card:'',address:''}"],
        ["={card:''}", "={card:1,address:''}"],
    ),
    Case(
        "dependentRequired of a closed object that cannot have it",
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False, "dependentRequired": {"a": ["b"]}},
        ["={}"],
        ["={a:1}", "={a:1,b:2}"],
    ),
    Case(
        "dependentRequired of many does not blow up",
        {
            **properties(**{f"p{n}": STRING for n in range(30)}),
            "dependentRequired": {f"p{n}": [f"p{n + 1}"] for n in range(29)},
        },
        ["={}", "={p0:'',p1:''}"],
        ["={p0:1}"],
    ),
    Case(
        "dependentSchemas does not narrow",
        {**properties(a=STRING, b=STRING), "dependentSchemas": {"a": {"required": ["b"], "properties": {"c": NUMBER}}}},
        ["={}", "={a:'',b:''}", "={a:'',b:''}"],
        ["={a:1}"],
    ),
    Case(
        "what then and else declare is allowed",
        {**properties(a=STRING), "if": {"required": ["a"]}, "then": properties(b=NUMBER), "else": properties(c=NUMBER)},
        ["={}", "={a:'',b:1}", "={c:1}"],
        ["={a:1}", "={d:1}"],
    ),
    Case(
        "what conditions inside allOf declare is allowed",
        {**properties(a=STRING), "allOf": [{"if": {"required": ["a"]}, "then": properties(b=NUMBER)}]},
        ["={a:'',b:1}"],
        ["={a:1}", "={d:1}"],
    ),
    Case(
        "what conditions declare through references leaves the object open",
        {**properties(a=STRING), "if": {}, "then": ref("B"), "$defs": {"B": properties(b=NUMBER)}},
        ["={a:'',b:1}"],
        ["={a:1}"],
    ),
    Case(
        "what dependentSchemas declares is allowed",
        {**properties(a=STRING), "dependentSchemas": {"a": properties(b=NUMBER)}},
        ["={a:'',b:1}"],
        ["={a:1}", "={d:1}"],
    ),
    Case(
        "more members of allOf than are looked at",
        {"allOf": [properties(**{f"p{n}": STRING}) for n in range(70)]},
        ["={p0:'',p69:''}"],
        ["={p0:1}"],
    ),
    Case(
        "more patterns than are looked at",
        {
            "type": "object",
            "patternProperties": {f"^p{n}$": {"enum": ["x"]} for n in range(600)} | {"^z$": NUMBER},
            "additionalProperties": False,
        },
        ["={p0:'x',z:1}"],
        ["=1"],
    ),
    Case(
        "dependencies of draft-07, of both sorts",
        {
            "$schema": DRAFT_07,
            **properties(a=STRING, b=STRING, c=STRING),
            "dependencies": {"a": ["b"], "c": {"required": ["b"]}},
        },
        ["={}", "={a:'',b:''}", "={c:'',b:''}"],
        ["={a:''}", "={b:1}"],
    ),
    Case(
        "required of what is not declared, beside more that is",
        {"type": "object", "properties": {"a": STRING, "b": STRING, "c": STRING}, "required": ["z"]},
        ["={z:1}", "={a:'',z:null}"],
        ["={}", "={a:''}", "={a:1,z:1}"],
    ),
    Case(
        "propertyNames as a choice",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": STRING},
        ["={}", "={a:''}", "={a:'',b:''}"],
        ["={c:''}", "={a:1}"],
    ),
    Case(
        "propertyNames through a reference",
        {"type": "object", "propertyNames": ref("N"), "additionalProperties": {}, "$defs": {"N": {"enum": ["a"]}}},
        ["={a:1}", "={}"],
        ["={z:1}"],
    ),
    Case(
        "propertyNames with a pattern",
        {"type": "object", "propertyNames": {"pattern": "^x-"}, "additionalProperties": NUMBER},
        ["={'x-a':1}", "={}"],
        ["={'x-a':''}"],
    ),
    Case(
        "propertyNames that TypeScript cannot say",
        {"type": "object", "propertyNames": {"pattern": "^(a|b)+$", "maxLength": 3}, "additionalProperties": NUMBER},
        ["={ab:1}", "={}"],
        ["={ab:''}"],
    ),
    Case("no property names at all", {"type": "object", "propertyNames": False}, ["={}"], ["=1"]),
    Case(
        "an index signature that conflicts with named properties",
        {**all_required(n=NUMBER, o=properties(x=STRING)), "additionalProperties": STRING},
        ["={n:1,o:{}}", "={n:1,o:{x:''},more:''}"],
        ["={n:'',o:{}}", "={n:1,o:{},more:true}", "={n:1,o:{x:1}}"],
    ),
    Case(
        "an index signature beside a recursive property",
        {**properties(self={"$ref": "#"}), "additionalProperties": NUMBER},
        ["={}", "={self:{self:{}},n:1}"],
        ["={self:{n:''}}", "={n:''}"],
    ),
    Case(
        "an index signature beside very many properties",
        {**properties(**{f"p{n}": {"enum": [f"only{n}"]} for n in range(60)}), "additionalProperties": NUMBER},
        ["={p7:'only7',z:1}"],
        ["={p7:'only8'}"],
    ),
    Case(
        "patternProperties, simple and alone",
        {"type": "object", "patternProperties": {"_id$": NUMBER}, "additionalProperties": False},
        ["={user_id:1}", "={}"],
        ["={user_id:''}"],
    ),
    Case(
        "patternProperties, many",
        {"type": "object", "patternProperties": {"^a": NUMBER, "^b": STRING, "[0-9]+": NULL}},
        ["={a:1,b:'',x1:null,zzz:{}}"],
        ["=1"],
    ),
    Case(
        "patternProperties that match a named property",
        {**properties(x_at=NUMBER), "patternProperties": {"_at$": STRING}, "additionalProperties": False},
        ["={}", "={y_at:''}"],
        ["={y_at:true}"],
    ),
    Case(
        "patternProperties whose pattern ends a comment and a template",
        {"type": "object", "patternProperties": {"*/`${PWNED}": NUMBER, "^\\/`": STRING}, "description": "*/"},
        ["={}", "={a:1}"],
        ["=1", "PWNED"],
    ),
    Case(
        "a thousand properties",
        {
            **properties(**{f"p{n}": {"type": "string", "description": f"number {n}"} for n in range(1000)}),
            "required": ["p999"],
        },
        ["={p999:''}", "={p0:'',p500:'',p999:''}"],
        ["={}", "={p999:1}", "={p999:'',p500:1}", "={p999:'',p1000:''}"],
        {"p0": "number 0", "p999": "number 999"},
    ),
    Case(
        "a schema of ten megabytes",
        {
            **all_required(first=STRING),
            "$defs": {f"d{n}": {"description": "x" * 10_000, "properties": {"a": STRING}} for n in range(1000)},
            "allOf": [properties(last=ref("d999"))],
        },
        ["={first:''}", "={first:'',last:{a:''}}"],
        ["={}", "={first:'',last:{a:1}}"],
    ),
    Case(
        "names that are JavaScript's own",
        {
            "type": "object",
            "properties": dict.fromkeys(("constructor", "class", "new", "0", "-1", "1e3"), NUMBER)
            | {"toString": STRING, "valueOf": False},
            "required": ["constructor", "0"],
        },
        ["={constructor:1,0:1,'-1':1,'1e3':1}", "={constructor:1,'0':1,toString:'',class:1,new:1}"],
        ["={constructor:'',0:1}", "={constructor:1,0:1,'-1':''}", "={constructor:1}"],
    ),
    Case(
        "__proto__ as a property",
        {"type": "object", "properties": {"__proto__": NUMBER, "a": STRING}, "required": ["__proto__"]},
        ["={['__proto__']:1}", "const n:number=v['__proto__']"],
        ["={a:''}", "const n:string=v['__proto__']"],
    ),
    Case(
        "names that try to leave their quotes",
        {
            "type": "object",
            "properties": {
                n: {"type": "number", "description": n}
                for n in ("'", '"', "`", "${x}", "\\", "a\u2028b", "\u202e", "x?: 1; y", "//", "/*", HOSTILE)
            },
            "required": ['"'],
        },
        ["={'\"':1,'`':1,'${x}':1,'\\\\':1,'a\\u2028b':1,'\\u202e':1}"],
        ["={}", "={'\"':''}", "={'\"':1,'`':''}", "={'\"':1,'a\\u2028b':''}", "PWNED"],
    ),
    Case(
        "a name too long to write",
        {"type": "object", "properties": {"x" * 100_000: STRING, "a": NUMBER}, "required": ["x" * 100_000]},
        ["={}", "={a:1}", "={['" + "x" * 100_000 + "']:'',a:1}"],
        ["={a:''}"],
    ),
    Case("depth", nested(30, STRING), [nested_value(30, "''")], [nested_value(30, "1"), nested_value(29, "1")]),
    Case(
        "more depth than is written", nested(300, STRING), [nested_value(300, "''")], ["={k:1}", nested_value(20, "1")]
    ),
]

COMBINATIONS = [
    Case(
        "anyOf of required",
        {**properties(id=NUMBER, name=STRING), "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
        ["={id:1}", "={name:''}", "={id:1,name:''}"],
        ["={}", "={id:''}", "={id:1,name:1}"],
    ),
    Case(
        "anyOf of required, of what is not declared",
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ["={a:1}", "={b:1,c:2}"],
        ["={}", "={c:1}"],
    ),
    Case(
        "oneOf with a discriminator",
        {
            "oneOf": [
                all_required(kind={"const": "circle"}, r=NUMBER),
                all_required(kind={"const": "square"}, side=NUMBER),
            ]
        },
        ["={kind:'circle',r:1}", "={kind:'square',side:1}", "if(v.kind==='circle'){const r:number=v.r}"],
        ["={kind:'circle',side:1}", "={kind:'square',r:1}", "={kind:'x',r:1}", "={r:1}", "v.r"],
    ),
    Case(
        "oneOf with a discriminator, in definitions and closed",
        {
            **all_required(shape={"oneOf": [ref("C"), ref("S")], "discriminator": {"propertyName": "kind"}}),
            "$defs": {"C": closed(kind={"const": "c"}, r=NUMBER), "S": closed(kind={"enum": ["s", "t"]}, side=NUMBER)},
        },
        ["={shape:{kind:'c',r:1}}", "={shape:{kind:'t',side:1}}"],
        ["={shape:{kind:'c',side:1}}", "={shape:{kind:'c',r:1,side:1}}", "={shape:{kind:'t',r:1}}"],
    ),
    Case(
        "a union of objects with overlapping keys",
        {"anyOf": [all_required(a=STRING, b=STRING), all_required(a=NUMBER, c=STRING), all_required(a=STRING)]},
        ["={a:'',b:''}", "={a:1,c:''}", "={a:''}"],
        ["={a:1}", "={b:''}", "={a:true}", "={}"],
    ),
    Case(
        "oneOf that overlaps accepts both",
        {"oneOf": [NUMBER, {"type": "integer"}, STRING]},
        ["=1", "=''"],
        ["=true"],
    ),
    Case(
        "a union as an array's items", array({"anyOf": [STRING, NUMBER]}), ["=['',1]", "=[]"], ["=''", "=1", "=[true]"]
    ),
    Case(
        "a nullable array of nullable items",
        {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
        ["=null", "=['',null]"],
        ["=''", "=[1]"],
    ),
    Case(
        "an intersection as an array's items",
        {
            **array({"allOf": [ref("A"), all_required(n=NUMBER)]}),
            "$defs": {"A": properties(a={"type": "array", "items": ref("A")})},
        },
        ["=[{n:1}]", "=[{n:1,a:[{}]}]", "=[]"],
        ["=[{}]", "={n:1}", "=[{n:1,a:[1]}]"],
    ),
    Case(
        "allOf with closed members is meant as one object",
        {"allOf": [closed(a=STRING), closed(b=NUMBER)]},
        ["={a:'',b:1}"],
        ["={a:''}", "={b:1}", "={a:'',b:1,c:1}"],
    ),
    Case(
        "allOf that narrows a property",
        {"allOf": [all_required(a={"type": ["string", "number"]}), properties(a={"type": ["string", "null"]})]},
        ["={a:''}"],
        ["={a:1}", "={a:null}", "={}"],
    ),
    Case(
        "allOf of choices",
        {"allOf": [{"enum": ["a", "b", 1]}, {"enum": ["b", 1, None]}, {"type": "string"}]},
        ["='b'"],
        ["='a'", "=1", "=null"],
    ),
    Case(
        "allOf of unions",
        {
            "allOf": [
                {"anyOf": [all_required(a=NUMBER), all_required(b=NUMBER)]},
                {"anyOf": [all_required(c=NUMBER), all_required(d=NUMBER)]},
            ]
        },
        ["={a:1,c:1}", "={b:1,d:1}", "={a:1,b:1,c:1,d:1}"],
        ["={a:1}", "={c:1,d:1}", "={a:1,b:1}"],
    ),
    Case(
        "allOf with conditions",
        {**all_required(a=STRING), "allOf": [{"if": properties(a={"const": "x"}), "then": all_required(b=NUMBER)}] * 3},
        ["={a:'x'}", "={a:'y'}"],
        ["={a:1}"],
    ),
    Case(
        "a contradiction of types",
        all_required(a={"allOf": [STRING, NUMBER]}, b=STRING),
        [],
        ["={a:'',b:''}", "={a:1,b:''}", "={b:''}"],
    ),
    Case(
        "a contradiction of a constant and a type",
        properties(a={"type": "string", "const": 1}),
        ["={}"],
        ["={a:1}", "={a:''}"],
    ),
    Case("an empty choice", properties(a={"enum": []}), ["={}"], ["={a:1}"]),
    Case(
        "a contradiction of lengths",
        properties(a=array(STRING, minItems=2, maxItems=1)),
        ["={}"],
        ["={a:['']}", "={a:['','']}"],
    ),
    Case(
        "a contradiction in one branch",
        {"anyOf": [{"allOf": [all_required(a=STRING), properties(a=NUMBER)]}, all_required(b=STRING)]},
        ["={b:''}"],
        ["={a:''}", "={a:1}"],
    ),
    Case(
        "a union with very many members",
        {"anyOf": [all_required(**{f"k{n}": NUMBER}) for n in range(400)]},
        ["={k0:1}", "={k399:1}"],
        ["={}", "={k0:''}", "={zzz:1}"],
    ),
    Case("a union with too many members", {"anyOf": [{"const": n} for n in range(5000)]}, ["=1", "=4999"]),
    Case("a choice with too many members", {"enum": [f"v{n}" for n in range(20_000)]}, ["='v19999'"], ["=1", "=null"]),
    Case("anyOf with an empty branch", {"anyOf": [STRING, {}]}, ["=''", "=1", "=null"]),
    Case(
        "anyOf with true and with false",
        all_required(a={"anyOf": [STRING, True]}, b={"anyOf": [STRING, False]}),
        ["={a:1,b:''}"],
        ["={a:1,b:1}"],
    ),
    Case("an empty anyOf says nothing", {"type": "string", "anyOf": [], "allOf": [], "oneOf": {}}, ["=''"], ["=1"]),
    Case(
        "nullable of OpenAPI, everywhere",
        {
            **all_required(
                a={"type": "string", "nullable": True},
                b={"$ref": "#/$defs/B", "nullable": True},
                c={"enum": ["x"], "nullable": True},
                d={"type": "string", "nullable": False},
            ),
            "$defs": {"B": all_required(n=NUMBER)},
        },
        ["={a:null,b:null,c:null,d:''}", "={a:'',b:{n:1},c:'x',d:''}"],
        ["={a:'',b:{},c:'x',d:''}", "={a:'',b:null,c:'y',d:''}", "={a:'',b:null,c:null,d:null}"],
    ),
    Case("type lists", {"type": ["string", "integer", "null"]}, ["=''", "=1", "=null"], ["=true", "=[]", "={}"]),
    Case("type lists with nonsense", {"type": ["string", "any", 7]}, ["=''", "=1", "={}"]),
    Case(
        "mixed constants",
        {"enum": ["a", 1, True, None, [1], {"a": [None]}]},
        ["='a'", "=1", "=true", "=null", "=[1]", "={a:[null]}"],
        ["='b'", "=2", "=false", "=[]", "=[2]", "={}", "={a:[]}"],
    ),
    Case(
        "a nested constant",
        {"const": {"a": {"b": [1, {"c": "x"}]}, "d": []}},
        ["={a:{b:[1,{c:'x'}]},d:[]}"],
        ["={a:{b:[1,{c:'y'}]},d:[]}", "={a:{b:[1]},d:[]}", "={a:{b:[1,{c:'x'}]},d:[1]}"],
    ),
    Case(
        "constants of every number",
        {"enum": [0, -0.0, 1e300, 5e-324, -1.5, 2**53, 1.0]},
        ["=0", "=1e300", "=5e-324", "=-1.5", "=9007199254740992n", "=1"],
        ["=2", "=''", "=9007199254740992", "=9007199254740993n", "=1n"],
    ),
    Case(
        "a choice of itself",
        {"enum": [{"$ref": "#"}, "a"], "$defs": {"A": {"enum": [{"$ref": "#/$defs/A"}]}}},
        ["='a'", "={$ref:'#'}"],
        ["='b'", "={$ref:'x'}"],
    ),
    Case(
        "a choice that refers to itself by its side",
        properties(a={"enum": ["x", "y"], "$ref": "#/properties/a"}),
        ["={a:'x'}", "={}"],
        ["={a:'z'}"],
    ),
    Case(
        "schemas that are booleans",
        all_required(a=True, b=array(True), c={"anyOf": [False, NUMBER]}),
        ["={a:1,b:[1,''],c:1}"],
        ["={a:1,b:1,c:1}", "={a:1,b:[],c:''}"],
    ),
    Case(
        "a property that must not be", properties(a=False, b=STRING), ["={}", "={b:''}"], ["={a:1}", "={a:null,b:''}"]
    ),
    Case("no schema at all", {}, ["=1", "=null", "={a:[]}"]),
    Case("typeless, with bounds", properties(a={"minimum": 1, "maxLength": 2}), ["={a:1}", "={a:''}", "={a:null}"]),
    Case(
        "typeless, with items and properties",
        {"items": STRING, "properties": {"a": NUMBER}},
        ["=['']", "={a:1}"],
        ["=[1]", "={a:''}"],
    ),
]

ARRAYS = [
    Case(
        "a tuple that contains itself in an optional element and in the rest",
        {
            "type": ["array", "string"],
            "prefixItems": [{"prefixItems": [{"$ref": "#"}], "items": False, "minItems": 1}],
            "items": array({"$ref": "#"}, minItems=1),
        },
        ["=''", "=[]", "=[['']]", "=[[[['']]],[''],['',[]]]"],
        ["=[1]", "=[[]]", "=[[''],1]", "=[[''],[]]"],
    ),
    Case(
        "lengths of arrays of arrays that contain themselves",
        {"$ref": "#/$defs/L", "$defs": {"L": array(array({"anyOf": [ref("L"), NULL]}, minItems=1), maxItems=2)}},
        ["=[]", "=[[[]]]", "=[[null],[null,[]]]"],
        ["=[[]]", "=[1]", "=[[1]]"],
    ),
    Case(
        "a closed tuple",
        {"type": "array", "prefixItems": [STRING, NUMBER], "items": False, "minItems": 2},
        ["=['',1]"],
        ["=['']", "=['',1,1]", "=[1,'']"],
    ),
    Case(
        "a tuple with optional ends",
        {"prefixItems": [STRING, NUMBER, NULL], "items": False, "minItems": 1},
        ["=['']", "=['',1]", "=['',1,null]"],
        ["=[]", "=['',null]", "=['',1,null,1]"],
    ),
    Case(
        "a tuple with a rest",
        {"prefixItems": [STRING], "items": {"type": ["number", "null"]}, "minItems": 1},
        ["=['']", "=['',1,null]"],
        ["=['','']", "=[1]", "=[]"],
    ),
    Case("an open tuple", {"prefixItems": [STRING], "minItems": 1}, ["=['']", "=['',{},null]"], ["=[1]", "=[]"]),
    Case(
        "a tuple of draft-07",
        {"$schema": DRAFT_07, "type": "array", "items": [STRING, NUMBER], "additionalItems": False, "minItems": 2},
        ["=['',1]"],
        ["=['']", "=['',1,1]", "=['','']"],
    ),
    Case(
        "a tuple of draft-07 with a rest",
        {"$schema": DRAFT_07, "items": [STRING], "additionalItems": NUMBER},
        ["=[]", "=['',1,2]"],
        ["=['','']"],
    ),
    Case(
        "a tuple in a union",
        {"anyOf": [{"prefixItems": [STRING], "items": False, "minItems": 1}, NULL]},
        ["=['']", "=null"],
        ["=[1]", "=['','']"],
    ),
    Case(
        "a tuple with a union inside",
        {"prefixItems": [{"anyOf": [STRING, NULL]}], "items": {"enum": [1, 2]}},
        ["=[]", "=[null,1,2]"],
        ["=[1]", "=['',3]"],
    ),
    Case("items: false", {"type": "array", "items": False}, ["=[]"], ["=[1]", "=''"]),
    Case("no items by maxItems", {"type": "array", "maxItems": 0}, ["=[]"], ["=[1]"]),
    Case("items of draft-04, empty", {"$schema": DRAFT_04, "type": "array", "items": []}, ["=[]", "=[1,'']"], ["=1"]),
    Case(
        "contains does not narrow",
        {"type": "array", "contains": STRING, "minContains": 2, "maxContains": 3},
        ["=[1,'']", "=[]"],
        ["=1"],
    ),
    Case(
        "unevaluatedItems does not narrow",
        {"type": "array", "prefixItems": [STRING], "unevaluatedItems": False},
        ["=['']", "=[]"],
        ["=[1]"],
    ),
    Case(
        "lengths",
        all_required(a=array(NUMBER, minItems=1), b=array(NUMBER, minItems=1, maxItems=3), c=array(NUMBER, maxItems=1)),
        ["={a:[1,2],b:[1],c:[]}"],
        ["={a:[],b:[1],c:[]}", "={a:[1],b:[],c:[]}", "={a:[1],b:[1,2,3,4],c:[]}", "={a:[1],b:[1],c:[1,2]}"],
    ),
    Case("lengths beyond any tuple", array(NUMBER, minItems=1000, maxItems=10**9), ["=[1]"], ["=['']", "=1"]),
    Case("a tuple of a thousand", {"prefixItems": [STRING] * 1000}, ["=['']", "=[]"], ["=''"]),
    Case(
        "allOf of array and tuple",
        {"allOf": [array(STRING), {"prefixItems": [{"enum": ["a"]}], "minItems": 1}]},
        ["=['a','b']"],
        ["=['b']", "=['a',1]", "=[]"],
    ),
    Case(
        "arrays in arrays",
        array(array(array({"type": ["string", "null"]}))),
        ["=[[['',null]]]"],
        ["=[['']]", "=[[[1]]]"],
    ),
]

COMMENTS = [
    Case(
        "hostile descriptions",
        properties(
            a={"type": "string", "description": HOSTILE},
            b=properties(c={"title": HOSTILE, "default": HOSTILE, "examples": [HOSTILE]}),
        ),
        ["={}"],
        ["={a:1}", "PWNED"],
        {"a": r"declare const PWNED: 1[\s\S]*end", "c": "@default"},
    ),
    Case(
        "hostile formats and patterns",
        properties(
            a={"type": "string", "format": "*/;PWNED", "pattern": "^[*]/*/.*/$"},
            b={"type": "string", "pattern": "\u2028*/`${x}"},
        ),
        ["={a:''}"],
        ["={a:1}", "PWNED"],
        {"a": r"@format \*\\/;PWNED @pattern", "b": "@pattern"},
    ),
    Case(
        "a very long description",
        properties(a={"description": "word " * 100_000}),
        ["={a:1}"],
        [],
        {"a": r"word… \*/$"},
    ),
    Case(
        "a long description without a blank",
        properties(a={"description": "x" * 100_000}),
        ["={a:1}"],
        [],
        {"a": r"^/\*\* x{100,300}… \*/$"},
    ),
    Case(
        "defaults of every kind",
        properties(
            a={"default": 0},
            b={"default": False},
            c={"default": ""},
            d={"default": []},
            e={"default": {"x": [1]}},
            f={"default": None},
        ),
        ["={}"],
        [],
        {"a": "@default 0", "b": "@default false", "c": '@default ""', "d": r"@default \[\]", "e": r"@default \{"},
    ),
    Case(
        "bounds of integers",
        properties(
            a={"type": "integer", "minimum": 1, "maximum": 100, "multipleOf": 5},
            b={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ),
        ["={a:5,b:0.5}"],
        ["={a:''}"],
        {"a": "@minimum 1 @maximum 100 @multipleOf 5", "b": "@exclusiveMinimum 0 @exclusiveMaximum 1"},
    ),
    Case(
        "exclusive bounds as draft-04 writes them",
        {
            "$schema": DRAFT_04,
            **properties(
                a={"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
            ),
        },
        ["={a:1}"],
        ["={a:''}"],
        {"a": "@exclusiveMinimum 0 @maximum 9"},
    ),
    Case(
        "annotations",
        properties(
            a={"type": "string", "deprecated": True, "readOnly": True, "examples": ["x", "y"]},
            b={"type": "string", "writeOnly": True, "contentEncoding": "base64"},
        ),
        ["={a:'',b:''}"],
        ["={a:1}"],
        {"a": '@deprecated[\\s\\S]*@example "x"'},
    ),
    Case(
        "annotations of the wrong type",
        properties(
            a={
                "description": 7,
                "default": {},
                "deprecated": "yes",
                "examples": "x",
                "format": [],
                "minimum": "1",
                "title": None,
            }
        ),
        ["={a:1}"],
    ),
    Case(
        "choices that are described",
        properties(a={"oneOf": [{"const": "lo", "description": "few"}, {"const": "hi", "title": "many"}]}),
        ["={a:'lo'}"],
        ["={a:'x'}"],
        {"a": '"lo": few; "hi": many'},
    ),
    Case(
        "what TypeScript cannot say of strings",
        properties(a={"type": "string", "minLength": 2, "maxLength": 5, "format": "email", "pattern": "^a+$"}),
        ["={a:''}"],
        ["={a:1}"],
        {"a": r"@format email @minLength 2 @maxLength 5 @pattern \^a\+\$"},
    ),
]

LARGE = {
    "of 64 bits": {"type": "integer", "format": "int64"},
    "of 64 bits without a sign": {"type": "integer", "format": "uint64", "minimum": 0},
    "of 64 bits, as numbers": {"type": "number", "format": "int64"},
    "with a large bound": {"type": "integer", "minimum": -5, "maximum": 2**63 - 1},
    "with a large bound that is excluded": {"type": "integer", "exclusiveMaximum": 2**64},
    "that may be null": {"type": ["integer", "null"], "format": "int64"},
    "of several types": {"anyOf": [{"type": "integer", "format": "int64"}, STRING]},
    "of a reference": {"$ref": "#/$defs/Id", "$defs": {"Id": {"type": "integer", "format": "int64"}}},
}
SMALL = {
    "with bounds": {"type": "integer", "minimum": 1, "maximum": 100},
    "with the bounds of Numbers": {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1},
    "with bounds that are excluded": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
    "of 32 bits": {"type": "integer", "format": "int32"},
    "of 64 bits, with bounds": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 100},
    "that may be fractions": NUMBER,
}
BOUNDLESS = {
    "without bounds": INTEGER,
    "with one bound": {"type": "integer", "minimum": 1},
    "or null": {"type": ["integer", "null"]},
    "in a list": array(INTEGER),
    "beside a choice": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]},
}
BOTH, ONE = ["=5", "=5n", "=725653563933458433n"], ["=5n", "=725653563933458433n"]
INTEGERS = [
    *(Case(f"integers {name}", schema, BOTH, ["=true"]) for name, schema in LARGE.items()),
    *(Case(f"given integers {name}", schema, BOTH, ["=true"], of_input=True) for name, schema in LARGE.items()),
    *(Case(f"small integers {name}", schema, ["=5"], ONE) for name, schema in SMALL.items()),
    *(Case(f"given small integers {name}", schema, ["=5"], ONE, of_input=True) for name, schema in SMALL.items()),
    *(
        Case(f"integers {name}, which a program calculates with", schema, ["=[5]" if "list" in name else "=5"], ONE)
        for name, schema in BOUNDLESS.items()
    ),
    *(
        Case(f"given integers {name}", schema, ["=[5, 5n]"] if "list" in name else BOTH, ["=true"], of_input=True)
        for name, schema in BOUNDLESS.items()
    ),
    Case("a large constant", {"const": 725653563933458433}, ["=725653563933458433n"], ["=725653563933458433", "=5n"]),
    Case(
        "a large constant that is an integer",
        {"allOf": [INTEGER, {"const": 725653563933458433}]},
        ["=725653563933458433n"],
        ["=5n"],
    ),
    Case("too many large constants", {"enum": [2**60 + n for n in range(1_100)]}, ["=5", "=5n"], ["=''"]),
]

CASES = [*REFERENCES, *OBJECTS, *COMBINATIONS, *ARRAYS, *COMMENTS, *INTEGERS]
