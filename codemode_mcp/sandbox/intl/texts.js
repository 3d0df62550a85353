// The smaller classes: plural rules, lists, relative times and segments of texts.
import { chosen, option, optionsOf, refuse, withKeywords } from "./locales.js";
import { getCanonicalLocales, loaded, NamedRules as Rules, Segmenter as Segments } from "./packages.js";
import { describe, mustBeNew, stateIn } from "./classes.js";

const plurals = new WeakMap(), relatives = new WeakMap(), lists = new WeakMap(), segmenters = new WeakMap();

function taken(service, given, known) {
  const options = optionsOf(given, service);
  option(options, "localeMatcher", "string", ["lookup", "best fit"]);
  const found = {};
  for (const [name, values] of Object.entries(known)) {
    const value = option(options, name, "string", values);
    if (value !== undefined) found[name] = value;
  }
  return [found, options];
}

const DIGITS = ["minimumIntegerDigits", "minimumFractionDigits", "maximumFractionDigits", "minimumSignificantDigits", "maximumSignificantDigits"];

export function PluralRules() {
  mustBeNew(new.target, "PluralRules");
  const [locales, given] = arguments;
  const requested = getCanonicalLocales(locales);
  const [found, options] = taken("Intl.PluralRules", given, { type: ["cardinal", "ordinal"] });
  for (const name of DIGITS) if (options[name] !== undefined) found[name] = options[name];
  const [name, base] = chosen("Intl.PluralRules", requested, []);
  plurals.set(this, { inner: new Rules(name, found), locale: base === "pt-PT" ? base : base.split("-")[0] });
}

describe(PluralRules, "PluralRules", {
  select(number) {
    return stateIn(plurals, this, "PluralRules", "select").inner.select(Number(number));
  },
  selectRange(start, end) {
    const { inner } = stateIn(plurals, this, "PluralRules", "selectRange");
    return inner.selectRange(Number(start), Number(end));
  },
  resolvedOptions() {
    const { inner, locale } = stateIn(plurals, this, "PluralRules", "resolvedOptions");
    const found = inner.resolvedOptions();
    // As ICU orders them.
    const pluralCategories = found.pluralCategories.toSorted((a, b) => (a === "other") - (b === "other") || (a < b ? -1 : 1));
    const shown = { ...found, locale, pluralCategories };
    const order = ["locale", "type", "minimumIntegerDigits", "minimumFractionDigits", "maximumFractionDigits", "minimumSignificantDigits", "maximumSignificantDigits", "pluralCategories"];
    return Object.fromEntries(order.filter((key) => shown[key] !== undefined).map((key) => [key, shown[key]]));
  },
});

const UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];

function unitOf(unit, method) {
  const text = String(unit);
  const found = UNITS.find((each) => each === text || each + "s" === text);
  if (found === undefined) refuse(`Invalid unit argument for Intl.RelativeTimeFormat.prototype.${method}() '${text}'`);
  return found;
}

function amount(value) {
  const number = Number(value);
  if (!Number.isFinite(number)) refuse(`The value ${number} is not a finite number`);
  return number;
}

export function RelativeTimeFormat() {
  mustBeNew(new.target, "RelativeTimeFormat");
  const [locales, given] = arguments;
  const requested = getCanonicalLocales(locales);
  const [found] = taken("Intl.RelativeTimeFormat", given, { numberingSystem: undefined, style: ["long", "short", "narrow"], numeric: ["always", "auto"] });
  const [name, base, used] = chosen("Intl.RelativeTimeFormat", requested, ["nu"]);
  if ((found.numberingSystem ?? used.nu ?? "latn") !== "latn") refuse("Intl.RelativeTimeFormat: the numberingSystem latn only is available here");
  loaded("numbers", name);
  relatives.set(this, { inner: new (loaded("relative", name))(name, found), locale: withKeywords(base, used), style: "long", numeric: "always", ...found });
}

describe(RelativeTimeFormat, "RelativeTimeFormat", {
  format(value, unit) {
    return stateIn(relatives, this, "RelativeTimeFormat", "format").inner.format(amount(value), unitOf(unit, "format"));
  },
  formatToParts(value, unit) {
    return stateIn(relatives, this, "RelativeTimeFormat", "formatToParts").inner.formatToParts(amount(value), unitOf(unit, "formatToParts"));
  },
  resolvedOptions() {
    const { locale, style, numeric } = stateIn(relatives, this, "RelativeTimeFormat", "resolvedOptions");
    return { locale, style, numeric, numberingSystem: "latn" };
  },
});

export function ListFormat() {
  mustBeNew(new.target, "ListFormat");
  const [locales, given] = arguments;
  const requested = getCanonicalLocales(locales);
  const [found] = taken("Intl.ListFormat", given, { type: ["conjunction", "disjunction", "unit"], style: ["long", "short", "narrow"] });
  const [name, base] = chosen("Intl.ListFormat", requested, []);
  lists.set(this, { inner: new (loaded("lists", name))(name, found), name, locale: base, type: "conjunction", style: "long", ...found });
}

function texts(list) {
  const found = [];
  if (list !== undefined) {
    for (const text of list) {
      if (typeof text !== "string") throw new TypeError("Iterable yielded " + String(text) + " which is not a string");
      found.push(text);
    }
  }
  return found;
}

// Return what is before a word of a list. "And" and "or" have other forms before some Spanish words. In Hebrew, "and" is
// part of the next word, with a hyphen before a word of another script.
function beforeWord(name, text, word) {
  if (name === "he") return text.endsWith("\u05d5") && !/^\p{Script=Hebrew}/u.test(word) ? text + "-" : text;
  if (name.startsWith("es")) {
    if (text === " y " && /^(?:i|hi(?![ae]))/i.test(word)) return " e ";
    if (text === " o " && /^(?:h?o|8|11(?: |$))/i.test(word)) return " u ";
  }
  return text;
}

function listParts(state, list) {
  const parts = state.inner.formatToParts(texts(list));
  return parts.map((part, i) => (part.type === "literal" ? { ...part, value: beforeWord(state.name, part.value, parts[i + 1]?.value ?? "") } : part));
}

describe(ListFormat, "ListFormat", {
  format(list) {
    return listParts(stateIn(lists, this, "ListFormat", "format"), list).map((part) => part.value).join("");
  },
  formatToParts(list) {
    return listParts(stateIn(lists, this, "ListFormat", "formatToParts"), list);
  },
  resolvedOptions() {
    const { locale, type, style } = stateIn(lists, this, "ListFormat", "resolvedOptions");
    return { locale, type, style };
  },
});

export function Segmenter() {
  mustBeNew(new.target, "Segmenter");
  const [locales, given] = arguments;
  const requested = getCanonicalLocales(locales);
  const [{ granularity = "grapheme" }] = taken("Intl.Segmenter", given, { granularity: ["grapheme", "word", "sentence"] });
  const [name, base] = chosen("Intl.Segmenter", requested, []);
  // The package has exceptions for abbreviations in some languages, which Node has not.
  const rules = granularity === "sentence" && name !== "el" ? "ja" : name;
  segmenters.set(this, { inner: new Segments(rules, { granularity }), locale: base, granularity });
}

// Words of these scripts are found with dictionaries, which are not here.
const WITHOUT_SPACES = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

describe(Segmenter, "Segmenter", {
  segment(input) {
    const { inner, granularity } = stateIn(segmenters, this, "Segmenter", "segment");
    const text = String(input);
    if (granularity === "word" && WITHOUT_SPACES.test(text)) refuse("Intl.Segmenter: words of texts without spaces, such as Chinese, Japanese and Thai, are not available here; use the granularity grapheme");
    return inner.segment(text);
  },
  resolvedOptions() {
    const { locale, granularity } = stateIn(segmenters, this, "Segmenter", "resolvedOptions");
    return { locale, granularity };
  },
});
