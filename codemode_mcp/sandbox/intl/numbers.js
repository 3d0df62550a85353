// Intl.NumberFormat: the package's, with the checks, defaults and messages of Node.
import { chosen, dataOf, option, optionsOf, refuse, withKeywords } from "./locales.js";
import { currencies } from "./data.js";
import { getCanonicalLocales, loaded } from "./packages.js";
import { describe, stateIn, unnamed } from "./classes.js";

const SERVICE = "Intl.NumberFormat";
const states = new WeakMap();
const UNITS = new Set((
  "acre bit byte celsius centimeter day degree fahrenheit fluid-ounce foot gallon gigabit gigabyte gram hectare hour inch kilobit " +
  "kilobyte kilogram kilometer liter megabit megabyte meter microsecond mile mile-scandinavian milliliter millimeter millisecond minute " +
  "month nanosecond ounce percent petabyte pound second stone terabit terabyte week yard year"
).split(" "));
export const unitNames = [...UNITS];
// Languages whose plural forms do not depend on the size of a number.
const ONE_PLURAL = /^(?:da|de|el|en|fi|hu|id|ja|ko|nb|nl|sv|tr|vi|zh|hi)(?:-|$)/;
const ROUNDING = ["ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfTrunc", "halfEven"];
const INCREMENTS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000];

function count(options, name, least, most) {
  const value = options[name];
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!(number >= least && number <= most)) refuse(`${name} value is out of range.`);
  return Math.floor(number);
}

function isUnit(unit) {
  if (UNITS.has(unit)) return true;
  const parts = unit.split("-per-");
  return parts.length === 2 && parts.every((part) => UNITS.has(part));
}

// Return the digits of a currency after the point.
const digitsOf = (currency) => new (loaded("numbers", "en"))("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

function readOptions(given, service) {
  const options = optionsOf(given, service);
  const found = {};
  const read = (name, values) => {
    const value = option(options, name, "string", values);
    if (value !== undefined) found[name] = value;
    return value;
  };
  read("localeMatcher", ["lookup", "best fit"]);
  delete found.localeMatcher;
  read("numberingSystem");
  const style = read("style", ["decimal", "percent", "currency", "unit"]) ?? "decimal";
  const currency = read("currency");
  if (currency !== undefined && !/^[a-z]{3}$/i.test(currency)) refuse("Invalid currency code : " + currency);
  read("currencyDisplay", ["code", "symbol", "name", "narrowSymbol"]);
  read("currencySign", ["standard", "accounting"]);
  const unit = read("unit");
  if (unit !== undefined && !isUnit(unit)) refuse(`Invalid unit argument for Intl.NumberFormat() '${unit}'`);
  read("unitDisplay", ["short", "narrow", "long"]);
  if (style === "currency" && currency === undefined) throw new TypeError("Currency code is required with currency style.");
  if (style === "unit" && unit === undefined) throw new TypeError("Invalid unit argument for Intl.NumberFormat() ''");
  const notation = read("notation", ["standard", "scientific", "engineering", "compact"]) ?? "standard";
  const digits = {
    minimumIntegerDigits: count(options, "minimumIntegerDigits", 1, 21),
    minimumSignificantDigits: count(options, "minimumSignificantDigits", 1, 21),
    maximumSignificantDigits: count(options, "maximumSignificantDigits", 1, 21),
  };
  const significant = digits.minimumSignificantDigits ?? digits.maximumSignificantDigits;
  // Digits of the fraction do not count beside significant ones, unless a priority is set.
  if (significant === undefined || (options.roundingPriority ?? "auto") !== "auto") {
    digits.minimumFractionDigits = count(options, "minimumFractionDigits", 0, 100);
    digits.maximumFractionDigits = count(options, "maximumFractionDigits", 0, 100);
  }
  for (const name of Object.keys(digits)) if (digits[name] !== undefined) found[name] = digits[name];
  const { minimumFractionDigits: least, maximumFractionDigits: most } = digits;
  if (least > most) refuse("maximumFractionDigits value is out of range.");
  if (digits.minimumSignificantDigits > digits.maximumSignificantDigits) refuse("maximumSignificantDigits value is out of range.");
  const increment = count(options, "roundingIncrement", 1, 5000);
  if (increment !== undefined && !INCREMENTS.includes(increment)) refuse("roundingIncrement value is out of range.");
  if (increment !== undefined) found.roundingIncrement = increment;
  read("roundingMode", ROUNDING);
  read("roundingPriority", ["auto", "morePrecision", "lessPrecision"]);
  read("trailingZeroDisplay", ["auto", "stripIfInteger"]);
  read("compactDisplay", ["short", "long"]);
  let grouping = options.useGrouping;
  if (grouping !== undefined && typeof grouping !== "boolean" && !["min2", "auto", "always", "true", "false"].includes(String(grouping))) {
    refuse(`Value ${String(grouping)} out of range for ${service} options property useGrouping`);
  }
  if (grouping === "true" || grouping === "false") grouping = undefined;
  if (grouping !== undefined) found.useGrouping = grouping;
  read("signDisplay", ["auto", "never", "always", "exceptZero", "negative"]);
  if (increment > 1) {
    if (significant !== undefined || (found.roundingPriority ?? "auto") !== "auto") throw new TypeError("RoundingType is not fractionDigits");
    const usual = style === "currency" ? digitsOf(currency) : 0;
    found.minimumFractionDigits = least ?? Math.min(usual, most ?? usual);
    found.maximumFractionDigits = most ?? Math.max(usual, least ?? usual);
    if (found.minimumFractionDigits !== found.maximumFractionDigits) refuse("maximumFractionDigits not equal to minimumFractionDigits");
  }
  if (style === "currency") {
    found.unknownCurrency = !currencies.includes(currency.toUpperCase());
    // These defaults do not depend on the notation, unless it is compact and there are no digits.
    const hasDigits = least !== undefined || most !== undefined;
    if (notation !== "standard" && significant === undefined && (hasDigits || notation !== "compact")) {
      const usual = digitsOf(currency);
      found.minimumFractionDigits = least ?? Math.min(usual, most ?? usual);
      found.maximumFractionDigits = most ?? Math.max(usual, least ?? usual);
    }
  }
  return found;
}

function notHere(what) {
  refuse(`${SERVICE}: ${what} is not available here`);
}

export function NumberFormat() {
  const self = new.target === undefined ? Object.create(NumberFormat.prototype) : this;
  states.set(self, stateFor(arguments[0], arguments[1], SERVICE));
  return self;
}

// Return the state of a format. `service`: the name of the constructor or method, for messages.
export function stateFor(locales, given, service) {
  const requested = getCanonicalLocales(locales);
  const options = readOptions(given, service);
  const [name, base, used] = chosen(SERVICE, requested, ["nu"]);
  const digits = options.numberingSystem ?? used.nu;
  if (digits !== undefined && digits !== "latn") notHere("the numberingSystem " + digits);
  if (options.numberingSystem !== undefined && used.nu !== options.numberingSystem) delete used.nu;
  if (options.unknownCurrency) notHere(`the currency ${options.currency}, which is in use nowhere,`);
  const { style, notation = "standard", unit } = options;
  if (name === "tr" && options.currencyDisplay === "name") notHere("names of currencies in Turkish"); // Node writes symbols, too
  const isScientific = notation === "scientific" || notation === "engineering";
  if (isScientific && (style === "unit" || options.currencyDisplay === "name")) notHere(`names of units and currencies with the notation ${notation}`);
  if (isScientific && (options.roundingPriority ?? "auto") !== "auto") notHere(`roundingPriority with the notation ${notation}`);
  if (isScientific && options.minimumSignificantDigits !== undefined && options.maximumSignificantDigits === undefined) notHere(`minimumSignificantDigits without maximumSignificantDigits with the notation ${notation}`);
  if (notation !== "standard" && style === "percent") notHere(`the style percent with the notation ${notation}`);
  // Node takes the zeros that the notation leaves out into account for plural forms.
  const hasNames = options.currencyDisplay === "name" || options.unitDisplay === "long";
  if (notation === "compact" && hasNames && !ONE_PLURAL.test(name)) notHere(`names of units and currencies with the notation compact in ${base}`);
  if (notation === "compact" && unit === "percent") notHere("the unit percent with the notation compact");
  if (notation === "compact" && (options.roundingPriority ?? "auto") !== "auto") notHere("roundingPriority with the notation compact");
  if (notation !== "standard" && options.roundingIncrement > 1) notHere(`roundingIncrement with the notation ${notation}`);
  const inner = new (loaded("numbers", name))(name, options);
  return { inner, name, locale: withKeywords(base, used), shown: inner.resolvedOptions() };
}

// Return the parts with marks of the direction of text as literals of their own.
function withoutMarks(parts) {
  if (!parts.some((part) => part.type !== "literal" && /\p{Bidi_Control}/u.test(part.value))) return parts;
  const found = [];
  for (const part of parts) {
    const pieces = part.type === "literal" ? [part.value] : part.value.split(/(\p{Bidi_Control}+)/u);
    pieces.forEach((value, i) => {
      const type = i % 2 === 1 ? "literal" : part.type;
      if (value === "") return;
      if (type === "literal" && found.at(-1)?.type === "literal") found.at(-1).value += value;
      else found.push({ type, value });
    });
  }
  return found;
}

// Correct what differs from Node: a space before infinity in currencies, and groups of digits in compact numbers.
function corrected(state, parts, value) {
  const { shown, name } = state;
  const { numbers } = dataOf("numbers", name);
  if (shown.style === "currency" && parts.some((part) => part.type === "infinity" || part.type === "nan")) {
    const pattern = numbers.currency.latn[shown.currencySign === "accounting" ? "accounting" : "standard"];
    if (!/\u00a4\s|\s\u00a4/.test(pattern)) parts = parts.filter((part, i) => !(part.type === "literal" && part.value === "\u00a0" && i > 0));
  }
  parts = withoutMarks(parts);
  if (parts[0]?.type === "percentSign" && parts[1]?.type.endsWith("Sign")) parts = [parts[1], parts[0], ...parts.slice(2)];
  // The package takes a small fraction for a large number.
  if (shown.notation === "compact" && value > -1 && value < 1) {
    parts = parts.filter((part, i) => part.type !== "compact" && !(part.type === "literal" && parts[i + 1]?.type === "compact"));
  }
  if (shown.notation === "compact" && shown.useGrouping !== "always" && parts.filter((part) => part.type === "group").length === 1) {
    const integers = parts.filter((part) => part.type === "integer").map((part) => part.value);
    if (integers.join("").length === 4) {
      const first = parts.findIndex((part) => part.type === "integer");
      parts = parts.toSpliced(first, 3, { type: "integer", value: integers.join("") });
    }
  }
  const at = shown.notation === "compact" && shown.useGrouping !== false ? parts.findIndex((part) => part.type === "integer") : -1;
  if (at >= 0 && parts[at + 1]?.type !== "group" && parts[at - 1]?.type !== "group") {
    const least = shown.useGrouping === "always" ? 4 : 5;
    const text = parts[at].value;
    if (text.length >= least) {
      const second = /#,##,/.test(numbers.decimal.latn.standard) ? 2 : 3;
      const groups = [text.slice(-3)];
      for (let rest = text.slice(0, -3); rest !== ""; rest = rest.slice(0, -second)) groups.unshift(rest.slice(-second));
      const grouped = groups.flatMap((value, i) => [...(i === 0 ? [] : [{ type: "group", value: numbers.symbols.latn.group }]), { type: "integer", value }]);
      parts = [...parts.slice(0, at), ...grouped, ...parts.slice(at + 1)];
    }
  }
  return parts;
}

const joined = (parts) => parts.map((part) => part.value).join("");

function numeric(value) {
  if (typeof value === "bigint") return value;
  const primitive = typeof value === "object" && value !== null ? value[Symbol.toPrimitive]?.("number") ?? value.valueOf() : value;
  return typeof primitive === "bigint" ? primitive : Number(primitive);
}

function partsOf(state, value) {
  const number = numeric(value);
  if (state.shown.notation === "compact" && state.name === "ja" && (number >= 1e16 || number <= -1e16)) notHere("numbers from 10^16 with the notation compact in Japanese");
  return corrected(state, state.inner.formatToParts(number), number);
}

export function formatNumber(state, value) {
  return joined(partsOf(state, value));
}

describe(NumberFormat, "NumberFormat", {
  get format() {
    const state = stateIn(states, this, "NumberFormat", "format");
    return (state.bound ??= unnamed((value) => joined(partsOf(state, value))));
  },
  formatToParts(value) {
    return partsOf(stateIn(states, this, "NumberFormat", "formatToParts"), value);
  },
  formatRange(start, end) {
    return notHere("formatRange() of numbers");
  },
  formatRangeToParts(start, end) {
    return notHere("formatRangeToParts() of numbers");
  },
  resolvedOptions() {
    const { shown, locale } = stateIn(states, this, "NumberFormat", "resolvedOptions");
    const found = { ...shown, locale };
    if (shown.style === "currency" && shown.signDisplay === "never") found.currencySign = "standard"; // as in Node
    const order = [
      "locale", "numberingSystem", "style", "currency", "currencyDisplay", "currencySign", "unit", "unitDisplay", "minimumIntegerDigits",
      "minimumSignificantDigits", "maximumSignificantDigits", "minimumFractionDigits", "maximumFractionDigits", "useGrouping", "notation", "compactDisplay",
      "signDisplay", "roundingMode", "roundingIncrement", "trailingZeroDisplay", "roundingPriority",
    ];
    return Object.fromEntries(order.filter((key) => found[key] !== undefined).map((key) => [key, found[key]]));
  },
});
