// The entry of the bundle: defines `Intl`, and gives the methods of the built-ins their locales and options.
import { intlInternals } from "./internals.js";
import { getCanonicalLocales, Locale } from "./packages.js";
import "./plurals.js";
import { DateTimeFormat, formatTime, stateFor as dateState } from "./dates.js";
import { NumberFormat, formatNumber, stateFor as numberState, unitNames } from "./numbers.js";
import { ListFormat, PluralRules, RelativeTimeFormat, Segmenter } from "./texts.js";
import { Collator, compare, stateFor as textState, useHost } from "./collator.js";
import { currencies } from "./data.js";
import { zoneNames } from "./zones.js";
import { dataOf, refuse } from "./locales.js";

function DisplayNames() {
  refuse("Intl.DisplayNames is not available here");
}

const VALUES = { currency: () => currencies, timeZone: zoneNames, unit: () => unitNames };

const functions = {
  getCanonicalLocales(locales) {
    return getCanonicalLocales(locales);
  },
  supportedValuesOf(key) {
    const name = String(key);
    if (VALUES[name] !== undefined) return [...VALUES[name]()];
    if (["calendar", "collation", "numberingSystem"].includes(name)) refuse(`Intl.supportedValuesOf: ${name} is not available here; there are ${Object.keys(VALUES).join(", ")}`);
    return refuse(`Invalid key : ${name}`);
  },
};

// Formats of repeated calls: a program calls toLocaleString() with the same arguments for each row.
const MAX_FORMATS = 32;
const formats = new Map();

function isPlain(options) {
  if (options === undefined) return true;
  if (options === null || typeof options !== "object" || Object.getPrototypeOf(options) !== Object.prototype) return false;
  return Object.values(Object.getOwnPropertyDescriptors(options)).every((each) => "value" in each && !["object", "function", "symbol"].includes(typeof each.value));
}

function formatFor(service, make, locales, options) {
  if ((locales !== undefined && typeof locales !== "string") || !isPlain(options)) return make(locales, options, service);
  const key = service + "\n" + locales + "\n" + (options === undefined ? "" : Object.entries(options).map(([name, value]) => `${name}\t${typeof value}\t${String(value)}`).join("\n"));
  let found = formats.get(key);
  if (found === undefined) {
    found = make(locales, options, service);
    if (formats.size >= MAX_FORMATS) formats.delete(formats.keys().next().value);
    formats.set(key, found);
  }
  return found;
}

const uncurry = (fn) => Function.prototype.call.bind(fn);
const thisNumber = uncurry(Number.prototype.valueOf);
const thisBigInt = uncurry(BigInt.prototype.valueOf);
const thisTime = uncurry(Date.prototype.getTime);

function thisText(value, method) {
  if (value === undefined || value === null) throw new TypeError(`String.prototype.${method} called on null or undefined`);
  return String(value);
}

const isUsual = (locales, options) => locales === undefined && options === undefined;

function methods(prototype, made) {
  for (const [name, fn] of Object.entries(made)) {
    Object.defineProperty(fn, "length", { value: name === "localeCompare" ? 1 : 0, configurable: true });
    Object.defineProperty(prototype, name, { value: fn, writable: true, enumerable: false, configurable: true });
  }
}

function numberMethod(prototype, thisValue, service) {
  const usual = uncurry(prototype.toLocaleString);
  methods(prototype, {
    toLocaleString(locales = undefined, options = undefined) {
      if (isUsual(locales, options)) return usual(this);
      const value = thisValue(this);
      return formatNumber(formatFor(service, numberState, locales, options), value);
    },
  });
}

function dateMethod(name, required, defaults) {
  const usual = uncurry(Date.prototype[name]);
  return {
    [name](locales = undefined, options = undefined) {
      if (isUsual(locales, options)) return usual(this);
      const time = thisTime(this);
      const make = (l, o, service) => dateState(getCanonicalLocales(l), o, required, defaults, service);
      const state = formatFor("Date.prototype." + name, make, locales, options);
      return time !== time ? "Invalid Date" : formatTime(state, time);
    },
  }[name];
}

// Languages with rules of their own for upper and lower case. Only those of Turkish and Azerbaijani are here.
const OWN_CASES = ["el", "hy", "lt"];

function cased(text, locales, method, change) {
  const [tag] = getCanonicalLocales(locales);
  const language = tag?.split("-")[0];
  if (language === "tr" || language === "az") return change(text, true);
  if (OWN_CASES.includes(language) && /[^\u0000-\u007f]/.test(text)) refuse(`${method}() has no rules for the locale ${JSON.stringify(tag)} here`);
  return change(text, false);
}

// What the package has beyond Node, or needs data for that is not here.
function trim() {
  delete Locale.polyfilled;
  for (const name of Object.getOwnPropertyNames(Locale.prototype)) if (name.startsWith("get")) delete Locale.prototype[name];
}

export default function install(host) {
  useHost(host);
  trim();
  const namespace = {};
  for (const [name, value] of Object.entries({
    ...functions, Collator, DateTimeFormat, DisplayNames, ListFormat, Locale, NumberFormat, PluralRules, RelativeTimeFormat, Segmenter,
  })) Object.defineProperty(namespace, name, { value, writable: true, enumerable: false, configurable: true });
  Object.defineProperty(namespace, Symbol.toStringTag, { value: "Intl", configurable: true });
  Object.defineProperty(globalThis, "Intl", { value: namespace, writable: true, enumerable: false, configurable: true });
  intlInternals.Collator = Collator;

  numberMethod(Number.prototype, thisNumber, "Number.prototype.toLocaleString");
  numberMethod(BigInt.prototype, thisBigInt, "BigInt.prototype.toLocaleString");
  methods(Date.prototype, {
    toLocaleString: dateMethod("toLocaleString", "any", "all"),
    toLocaleDateString: dateMethod("toLocaleDateString", "date", "date"),
    toLocaleTimeString: dateMethod("toLocaleTimeString", "time", "time"),
  });
  const usualCompare = uncurry(String.prototype.localeCompare);
  const upper = uncurry(String.prototype.toUpperCase), lower = uncurry(String.prototype.toLowerCase);
  methods(String.prototype, {
    localeCompare(that, locales = undefined, options = undefined) {
      if (isUsual(locales, options)) return usualCompare(this, that);
      const text = thisText(this, "localeCompare"), other = String(that);
      return compare(formatFor("String.prototype.localeCompare", textState, locales, options), text, other);
    },
    toLocaleUpperCase(locales = undefined) {
      const text = thisText(this, "toLocaleUpperCase");
      return cased(text, locales, "toLocaleUpperCase", (value, turkish) => upper(turkish ? value.replaceAll("i", "İ") : value));
    },
    toLocaleLowerCase(locales = undefined) {
      const text = thisText(this, "toLocaleLowerCase");
      return cased(text, locales, "toLocaleLowerCase", (value, turkish) => lower(turkish ? value.replace(/I\u0307|İ/g, "i").replaceAll("I", "ı") : value));
    },
  });
  // The most frequent locale is ready.
  for (const section of ["dates", "numbers"]) dataOf(section, "en");
  new DateTimeFormat("en");
  new NumberFormat("en").format(0);
}
