"""Topics of servers: single words about their tools, for the description of `exec` of each policy. Pure.

The words come from names, titles and descriptions that upstreams write, and every prompt has them. An upstream must not
be able to write a sentence there. Therefore:

- A topic is one word of ASCII letters, of bounded length. Scripts without spaces could put a sentence into one word.
- Verbs of instruction, pronouns, adverbs, and words about tools, models and prompts are not topics. Two words written
  as one are not a topic if the first one is a verb or adverb of instruction: `ignoreprevious`.
- A word counts if it is in the name of a tool, or in two tools.
- A server has at most `MAX_TOPICS` topics. The description of `exec` sorts the topics of all servers together and
  separates them by commas, so upstreams do not control their order.

Equal tools give equal topics, independent of the order of tools.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from codemode_mcp.catalog.entries import is_for_apps_only, mcp_id
from codemode_mcp.catalog.overrides import NO_OVERRIDES, Overrides
from codemode_mcp.rules.policy.policy import Deny, Policy
from declarations.names import word_set
from declarations.untrusted_text import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from upstream_clients.tools import Tool, UpstreamView


MAX_TOPICS: Final = 6
"""Maximum number of topics of one server."""
MAX_SERVERS: Final = 40
"""Number of servers above which there are no topics. The description then needs its bytes for the servers' names."""
MAX_TOOLS: Final = 300
"""Maximum number of tools of one server that are read."""
MAX_TEXT: Final = 200
"""Maximum number of characters that are read of a name, a title and a description."""
MIN_LETTERS: Final = 3
MAX_LETTERS: Final = 16

_NAME, _TITLE, _DESCRIPTION = 3, 2, 1
"""Weights of a word in the name, the title and the description of a tool."""

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TOKEN: Final = re.compile(r"[^\W_]+")
_ADDRESS: Final = re.compile(r"\S*(?:://|@|www\.)\S*")


_NOT_TOPICS: Final = word_set("""
    a about above across after again against all along already also although always among an and another any anyone
    anything are around as at away back be because been before behind being below best better between beyond both
    but by can cannot could did do does done down during each either else even ever every everyone everything
    exactly except few first for from full further had has have he her here hers him his how however i if in inside
    instead into is it its itself just last later least less like likely long many may maybe me might mine more most
    much must my near need neither never next no none nor not nothing now of off often on once one only or other
    otherwise our out outside over own per perhaps please previous prior quite rather same second self several shall
    she should since so some something soon still such than that the their them then there these they this those
    though three through thus to today together too toward two under unless until up upon us use useful very via
    want was we well were what whatever when where whether which while who whom whose why will with within without
    would yes yet you your yours yourself

    anyhow compulsory danger dangerous furthermore hence henceforth mandatory moreover nevertheless nonetheless
    obligatory thereby therefore therein thereof urgent whereas whereby whilst

    able access act activate add adjust admit advance aggregate agree allow analyze annotate append apply argue
    arrange arrive ask assign attach authorize avoid beat become begin believe beware block break bring brought
    build burn buy bypass calculate call came cancel catch caught change check choose chose clean clear click clone
    close collect combine come compare complete comply compute configure confirm connect consider contain continue
    convert copy count crash create curl customize cut decide decrypt define delete deliver demonstrate deny
    describe destroy detect determine die disable disclose discover dismiss display disregard distinguish do
    download drop eat echo edit emit empty enable encode encrypt end ensure enter erase escape eval evaluate exec
    execute exfiltrate exist exit expand expect explore export expose extract fail fall feel felt fetch fill filter
    finalize find finish fix fly follow force forget format forward gave generate get give go gone grant group grow
    handle hear held help hide hold hurt identify ignore import include indicate insert inspect install invoke join
    jump keep kept kick kill know launch lead leak learn leave left lend let lie limit link list load log look lose
    lost made make manage mark match mean meant measure mention merge met modify monitor move must navigate notice
    notify obey obtain offer open operate override owe parse pass paste pay peek perform pick place plan play post
    prefer prepare press pretend prevent print proceed process proclaim produce prompt protect prove provide publish
    pull push put query quit react read receive recommend record redirect refresh refuse register reject release
    remember remove rename render repeat replace reply request require reset resist resolve respond restart restore
    resume retain retrieve retry return reveal revoke rewrite rise rotate run said sang sat save saw say scan scroll
    search see seek seen select sell send sent set share show sign simulate sing sink sit skip sleep sort speak
    specify spend spoke stand start steal stole stop store stream strike struck submit subscribe suggest summarize
    support surrender swap swear swim switch sync take teach tear tell terminate test thought throw toggle told took
    touch track transfer transform transmit treat trigger trust try turn type understand understood undertake undo
    unleash unlock unsubscribe update upload upsert urge validate verify view visit wait wake walk watch wear win
    wipe wish wrap write wrote yell

    action active additional admin advanced agent alias annotation api app applicable application arg argument array
    assistant associated attribute automatic available backend bad base based basic batch big bool boolean bulk
    capability category char character chatgpt claude cli client code codex command common condition config
    configuration content context control correct current cursor custom data date default description destination
    detail detailed developer different dir direct directly duplicate dynamic element endpoint entire entity entry
    env environment error etc example existing expression extension extra feature field final float format found
    function gemini general given global good gpt guidance guide handler high huge human identifier important index
    info information initial input instance instruction int integer internal item json key kind language latest left
    length level line llm local location main management max maximum mcp message metadata method mid min minimum
    mode model multiple name new non note null number numeric object old op operation operator option optional
    original output page pagination param parameter part particular path pattern perfect point policy possible
    prefix present primary prompt proper property purpose quick range raw ready real recent reference related
    relevant required resource response result returned role root row rule safe sample schema scope section security
    separate server service session setting short similar simple single size source special specific specified
    standard state status step str string structure structured style sub successful sudo suffix sum supported system
    tag target task template term text thing time timestamp tiny title token tool top total true unique unit url
    usage user utility valid value variable various version way wildcard word work workflow zero
""")
"""Words that say nothing about the purpose of a server, or that could instruct a model."""

_NOT_NOUN: Final = tuple(word_set("ly ied ted ded ged ned red sed ced ked led ped ved ical lize rize"))
"""Endings of adverbs, participles, adjectives and verbs."""


_JOINED_WORDS: Final = re.compile(
    "(?:accept|allow|always|answer|approve|before|bypass|delete|disable|disregard|dont|erase|execute|expose|first|"
    "follow|forget|forward|grant|ignore|instead|jailbreak|leak|must|never|obey|override|please|pretend|remove|repeat|"
    "reply|respond|reveal|send|steal|sudo|system|transfer|trust|upload|without|you)[a-z]{4,}"
)
"""Two words written as one, the first of which instructs. This excludes only few nouns, such as `sendgrid`."""


class _WordUse(Struct):
    """A word in the tools of one server.

    Attributes:
        score: sum of the weights in the tools that have the word.
        tools: number of tools that have the word.
        named: True if the word is in the name of a tool.
        forms: number of tools by spelling, e.g. `issue` and `issues`.
    """

    score: int
    tools: int
    named: bool
    forms: Counter[str]


def plain_words(name: str) -> str:
    """Return a configured name as lower-case words: `google calendar` for `googleCalendar` and `google-calendar`."""
    visible = HIDDEN.sub(" ", unicodedata.normalize("NFC", name))
    kept = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in visible)
    return " ".join(part for word in kept.split() for part in _CAMEL.split(word)).lower()


def topics(servers: Mapping[str, Collection[Tool]]) -> tuple[str, ...]:
    """Return the topics of all servers, the most specific first.

    The best topics of all servers come before the second topic of any server. A topic of several servers occurs once.

    Args:
        servers: tools by configured name, in the order of the configuration.
    """
    if len(servers) > MAX_SERVERS:
        return ()
    seen = {name: _word_uses(tools, name) for name, tools in servers.items()}
    spread = Counter(key for words in seen.values() for key in words)
    ranked = [_best(words, spread) for words in seen.values()]
    chosen: dict[str, str] = {}
    for rank in zip_longest(*ranked):
        for found in rank:
            if found is not None:
                chosen.setdefault(*found)
    return tuple(chosen.values())


def _best(words: Mapping[str, _WordUse], spread: Counter[str]) -> Sequence[tuple[str, str]]:
    """Return the key and the most frequent spelling of each of one server's topics, best first."""
    eligible = [(key, word) for key, word in words.items() if word.named or word.tools > 1]
    eligible.sort(key=lambda each: (-each[1].score / spread[each[0]], each[0]))
    return [(key, min(word.forms, key=lambda form: (-word.forms[form], form))) for key, word in eligible[:MAX_TOPICS]]


def _word_uses(tools: Collection[Tool], server: str) -> dict[str, _WordUse]:
    own = {_singular(word) for word in _letters(server, split=True)} | {_singular(plain_words(server).replace(" ", ""))}
    found: dict[str, _WordUse] = {}
    for tool in sorted(tools, key=lambda tool: tool.name)[:MAX_TOOLS]:
        here: dict[str, int] = {}
        forms: dict[str, set[str]] = {}
        for text, weight in ((tool.name, _NAME), (tool.title or "", _TITLE), (tool.description, _DESCRIPTION)):
            for word in _letters(text, split=weight == _NAME):
                key = _singular(word)
                if key not in own and _may_be_topic(word, key):
                    here.setdefault(key, weight)
                    forms.setdefault(key, set()).add(word)
        for key, weight in here.items():
            word_seen = found.setdefault(key, _WordUse(0, 0, False, Counter()))
            word_seen.score += weight
            word_seen.tools += 1
            word_seen.named |= weight == _NAME
            word_seen.forms.update(forms[key])
    return found


def _letters(text: str, *, split: bool) -> Iterable[str]:
    """Return the words of a text that consist of ASCII letters, in lower case.

    Args:
        split: True to split words at capitals, as in names. In prose, `GitHub` is one word.
    """
    for token in _TOKEN.findall(_ADDRESS.sub(" ", text[:MAX_TEXT]).replace("_", " ")):
        if token.isascii() and token.isalpha():
            yield from (part.lower() for part in (_CAMEL.split(token) if split else (token,)))


@lru_cache(maxsize=8192)
def _may_be_topic(word: str, key: str) -> bool:
    if not MIN_LETTERS <= len(word) <= MAX_LETTERS or word.endswith(_NOT_NOUN) or _JOINED_WORDS.fullmatch(word):
        return False
    return not any(form in _NOT_TOPICS for form in (word, key, *_possible_verbs(word)))


@lru_cache(maxsize=8192)
def _singular(word: str) -> str:
    """Return the singular of a word as its key: `issue` for `issue` and `issues`."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


def _possible_verbs(word: str) -> Iterable[str]:
    """Return the verbs that a form in `-ing`, `-ed`, `-er` or `-es` may come from."""
    for ending in ("ing", "ed", "er", "es"):
        base = word.removesuffix(ending)
        if base != word and len(base) > 1:
            yield base
            yield base + "e"
            if base[-1] == base[-2]:
                yield base[:-1]


# Topics of servers for each policy, without words of tools that the policy denies.
#
# Topics change only while no server is connecting. At the start, servers without cached tool lists become ready one
# after another. If topics changed each time, the tool list would change and clients would be notified each time.


class CallerTopics:
    """The topics of each policy.

    Args:
        views: returns the servers as they are now, in the order of the configuration.
    """

    def __init__(self, views: Callable[[], Sequence[UpstreamView]], overrides: Overrides = NO_OVERRIDES) -> None:
        self._views = views
        self._overrides = overrides
        # The mutable state: topics with the tool lists that they were made from. The lists are compared by identity.
        self._found: dict[Policy, tuple[tuple[tuple[Tool, ...], ...], tuple[str, ...]]] = {}

    def of(self, policy: Policy) -> tuple[str, ...]:
        """Return the topics for callers of a policy, the most specific first."""
        views = [view for view in self._views() if policy.may_admit(f"mcp:{view.name}:")]
        listed = tuple(view.tools for view in views)
        found = self._found.get(policy)
        if found is not None and (_identical(found[0], listed) or any(view.state == "connecting" for view in views)):
            return found[1]
        shown: tuple[str, ...] = ()
        if len(views) <= MAX_SERVERS:
            shown = topics({view.name: _read(policy, view, self._overrides.shown(view)) for view in views})
        self._found[policy] = listed, shown
        return shown


def _read(policy: Policy, view: UpstreamView, shown: Mapping[str, Tool]) -> list[Tool]:
    """Return the first `MAX_TOOLS` tools that policy admits. The others, perhaps 10,000, are not judged.

    Args:
        shown: the tools that an override changes, by the names that the server lists.
    """

    def is_admitted(tool: Tool) -> bool:
        if is_for_apps_only(tool):
            return False
        tool_id = mcp_id(view.name, tool.name)
        return not isinstance(policy.decide(tool_id, policy.effects(tool_id, tool.annotations)), Deny)

    read = islice(filter(is_admitted, sorted(view.tools, key=lambda tool: tool.name)), MAX_TOOLS)
    return [shown.get(tool.name, tool) for tool in read]


def _identical(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
