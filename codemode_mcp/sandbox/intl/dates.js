// Intl.DateTimeFormat, with the patterns that ICU would choose and the rules of V8 for hour cycles.
import { dataOf, chosen, withKeywords, option, optionsOf, refuse } from "./locales.js";
import { CYCLES, PatternGenerator, items, skeletonOf } from "./patterns.js";
import { canonicalZone, offsetAt, isDaylight, metazone, goldenZone } from "./zones.js";
import { rangeParts } from "./intervals.js";
import { getCanonicalLocales } from "./packages.js";
import { describe, stateIn, unnamed } from "./classes.js";

const WIDTHS = ["narrow", "short", "long"];
const NUMERIC = ["2-digit", "numeric"];
const ZONE_NAMES = ["short", "long", "shortOffset", "longOffset", "shortGeneric", "longGeneric"];
const STYLES = ["full", "long", "medium", "short"];
const BY_CHAR = { K: "h11", h: "h12", H: "h23", k: "h24" };
// Options in the order in which they are read and shown: the letters of their values.
const FIELDS = {
  weekday: [WIDTHS, { narrow: "EEEEE", short: "EEE", long: "EEEE" }],
  era: [WIDTHS, { narrow: "GGGGG", short: "GGG", long: "GGGG" }],
  year: [NUMERIC, { "2-digit": "yy", numeric: "y" }],
  month: [[...WIDTHS, ...NUMERIC], { "2-digit": "MM", numeric: "M", narrow: "MMMMM", short: "MMM", long: "MMMM" }],
  day: [NUMERIC, { "2-digit": "dd", numeric: "d" }],
  dayPeriod: [WIDTHS, { narrow: "BBBBB", short: "B", long: "BBBB" }],
  hour: [NUMERIC, { "2-digit": 2, numeric: 1 }],
  minute: [NUMERIC, { "2-digit": "mm", numeric: "m" }],
  second: [NUMERIC, { "2-digit": "ss", numeric: "s" }],
  timeZoneName: [ZONE_NAMES, { short: "z", long: "zzzz", shortOffset: "O", longOffset: "OOOO", shortGeneric: "v", longGeneric: "vvvv" }],
};
const SHOWN = ["weekday", "era", "year", "month", "day", "dayPeriod", "hour", "minute", "second", "fractionalSecondDigits", "timeZoneName"];
const alike = (letters, other) => letters.concat(letters.map(([text, value]) => [text.replaceAll(...other), value]));
const byLength = (name) => Object.entries(FIELDS[name][1]).map(([value, text]) => [text, value]).sort((a, b) => b[0].length - a[0].length);
const HOURS = ["H", "h", "k", "K"].flatMap((char) => [[char + char, "2-digit"], [char, "numeric"]]);
const SHOWN_LETTERS = {
  ...Object.fromEntries(Object.keys(FIELDS).filter((name) => name !== "hour").map((name) => [name, byLength(name)])),
  timeZoneName: ["zzzz", "z", "OOOO", "O", "vvvv", "v"].map((text) => [text, Object.keys(FIELDS.timeZoneName[1]).find((value) => FIELDS.timeZoneName[1][value] === text)]),
  weekday: alike(byLength("weekday"), [/E/g, "c"]), month: alike(byLength("month"), [/M/g, "L"]), hour: HOURS,
  dayPeriod: byLength("dayPeriod").flatMap(([text, value]) => [[text, value], [text.replaceAll("B", "b"), value]]),
};
const LETTERS = {
  G: "era", y: "year", Y: "year", M: "month", L: "month", E: "weekday", c: "weekday", e: "weekday", d: "day", a: "dayPeriod", b: "dayPeriod",
  B: "dayPeriod", h: "hour", H: "hour", k: "hour", K: "hour", m: "minute", s: "second", S: "fractionalSecond", z: "timeZoneName",
  v: "timeZoneName", O: "timeZoneName",
};
const MAX_TIME = 8.64e15;

const two = (n) => (n < 10 ? "0" + n : "" + n);
const unquoted = (text) => (text === "''" ? "'" : text[0] === "'" ? text.slice(1, -1).replaceAll("''", "'") : text);

// Replace the letters of the hour in a pattern.
function withCycle(pattern, cycle) {
  let last = "";
  return items(pattern).map((item) => {
    const isHour = /^[hHkK]/.test(item);
    const written = isHour ? (last === "d" ? " " : "") + CYCLES[cycle].repeat(item.length) : item;
    last = item.at(-1);
    return written;
  }).join("");
}

const cycleOf = (pattern) => BY_CHAR[items(pattern).find((item) => /^[hHkK]/.test(item))?.[0]];

function readFields(options, required, defaults) {
  const found = {};
  let hasAny = false;
  for (const name of Object.keys(FIELDS)) {
    if (name === "timeZoneName") {
      let digits = options.fractionalSecondDigits;
      if (digits !== undefined) {
        digits = Number(digits);
        if (!(digits >= 1 && digits <= 3)) refuse("fractionalSecondDigits value is out of range.");
        found.fractionalSecondDigits = Math.floor(digits);
      }
    }
    const value = option(options, name, "string", FIELDS[name][0]);
    if (value !== undefined) found[name] = value;
  }
  const dates = ["weekday", "year", "month", "day"];
  const times = ["dayPeriod", "hour", "minute", "second", "fractionalSecondDigits"];
  if (required !== "time") hasAny = dates.some((name) => found[name] !== undefined);
  if (required !== "date") hasAny ||= times.some((name) => found[name] !== undefined);
  return [found, hasAny];
}

const states = new WeakMap();

// Return the state of a format. `service`: the name of the constructor or method, for messages.
export function stateFor(requested, given, required, defaults, service) {
  const options = optionsOf(given, service);
  if (required === "date" && options.timeStyle !== undefined) throw new TypeError("Invalid option : timeStyle");
  if (required === "time" && options.dateStyle !== undefined) throw new TypeError("Invalid option : dateStyle");
  const calendar = option(options, "calendar", "string");
  const digits = option(options, "numberingSystem", "string");
  option(options, "localeMatcher", "string", ["lookup", "best fit"]);
  const hour12 = option(options, "hour12", "boolean");
  let asked = option(options, "hourCycle", "string", ["h11", "h12", "h23", "h24"]);
  if (hour12 !== undefined) asked = undefined;
  const [name, base, used] = chosen("Intl.DateTimeFormat", requested, ["ca", "hc", "nu"]);
  for (const [key, value, only] of [["calendar", calendar ?? used.ca, "gregory"], ["numberingSystem", digits ?? used.nu, "latn"]]) {
    if (value !== undefined && value.toLowerCase() !== only) refuse(`Intl.DateTimeFormat: the ${key} ${value} is not available here; there is ${only} only`);
  }
  if (calendar !== undefined && used.ca !== calendar) delete used.ca;
  if (digits !== undefined && used.nu !== digits) delete used.nu;
  if ((asked !== undefined && used.hc !== asked) || hour12 !== undefined || CYCLES[used.hc] === undefined) delete used.hc;
  const data = dataOf("dates", name);
  let zone = options.timeZone;
  if (zone === undefined) zone = "UTC";
  else {
    const known = canonicalZone(String(zone));
    if (known === undefined) refuse("Invalid time zone specified: " + String(zone));
    zone = known;
  }
  const generator = PatternGenerator.of(data, dataOf("numbers", name).numbers.symbols.latn.decimal);
  const usual = BY_CHAR[data.hour];
  let cycle;
  if (hour12 === true) cycle = usual === "h11" || usual === "h23" ? "h11" : "h12";
  else if (hour12 === false) cycle = usual === "h11" || usual === "h23" ? "h23" : "h24";
  else cycle = asked ?? used.hc ?? usual;
  const [fields, hasAny] = readFields(options, required, defaults);
  option(options, "formatMatcher", "string", ["basic", "best fit"]);
  const dateStyle = option(options, "dateStyle", "string", STYLES);
  const timeStyle = option(options, "timeStyle", "string", STYLES);
  const state = { base, used, data, name, zone, dateStyle, timeStyle, generator, cycle };
  if (dateStyle !== undefined || timeStyle !== undefined) {
    const explicit = SHOWN.find((each) => fields[each] !== undefined);
    if (explicit !== undefined) throw new TypeError(`Can't set option ${explicit} when ${dateStyle !== undefined ? "dateStyle" : "timeStyle"} is used`);
    state.pattern = styled(state);
  } else {
    if (!hasAny) {
      if (defaults !== "time") fields.year = fields.month = fields.day = "numeric";
      if (defaults !== "date") fields.hour = fields.minute = fields.second = "numeric";
    }
    let skeleton = "";
    for (const field of Object.keys(FIELDS)) {
      if (field === "timeZoneName" && fields.fractionalSecondDigits !== undefined) skeleton += "S".repeat(fields.fractionalSecondDigits);
      const letters = FIELDS[field][1][fields[field]];
      if (letters !== undefined) skeleton += field === "hour" ? CYCLES[cycle].repeat(letters) : letters;
    }
    state.pattern = withCycle(generator.best(skeleton), cycle);
  }
  if (cycleOf(state.pattern) === undefined) state.cycle = undefined;
  return state;
}

function styled({ data, dateStyle, timeStyle, generator, cycle }) {
  const date = data.date[STYLES.indexOf(dateStyle)];
  if (timeStyle === undefined) return date;
  const time = data.time[STYLES.indexOf(timeStyle)];
  const pattern = date === undefined ? time : data.both[STYLES.indexOf(dateStyle)].replace(/\{([01])\}/g, (_, n) => (n === "1" ? date : time));
  if (cycleOf(pattern) === cycle) return pattern;
  const skeleton = skeletonOf(pattern).replace(/[abB]/g, "").replace(/[hHkK]/g, CYCLES[cycle]);
  return withCycle(generator.best(skeleton), cycle);
}

// Return the fields of a time in a zone.
export function fieldsOf(time, zone) {
  const offset = offsetAt(zone, time);
  const date = new Date(time + offset);
  const year = date.getUTCFullYear();
  return {
    time, zone, offset, era: year > 0 ? 1 : 0, year: year > 0 ? year : 1 - year, month: date.getUTCMonth(), weekday: date.getUTCDay(),
    day: date.getUTCDate(), hour: date.getUTCHours(), minute: date.getUTCMinutes(), second: date.getUTCSeconds(), ms: date.getUTCMilliseconds(),
  };
}

const width = (length) => (length === 4 ? "w" : length === 5 ? "n" : length === 6 ? "s" : "a");

export function periodOf(data, at, hasMinute = true, hasSecond = true) {
  const minute = at.hour * 60;
  const exact = (hasMinute ? at.minute : 0) === 0 && (hasSecond ? at.second : 0) === 0;
  if (exact) {
    // ICU does not write "midnight".
    const moment = data.rules.find(([period, from, before]) => before === null && from === minute && period !== "midnight");
    if (moment !== undefined) return moment[0];
  }
  return data.rules.find(([, from, before]) => before !== null && (from < before ? from <= minute && minute < before : from <= minute || minute < before))?.[0];
}

function formatted(item, at, data, whole) {
  const n = item.length;
  const numeric = (value) => (n >= 2 ? two(value) : "" + value);
  switch (item[0]) {
    case "G": return data.eras[n === 4 ? "w" : n === 5 ? "n" : "a"][at.era];
    case "y": case "Y": return n === 2 ? two(at.year % 100) : String(at.year).padStart(n, "0");
    case "M": return n > 2 ? data.months["f" + width(n)][at.month] : numeric(at.month + 1);
    case "L": return n > 2 ? data.months["s" + width(n)][at.month] : numeric(at.month + 1);
    case "E": return data.days["f" + width(n)][at.weekday];
    case "c": case "e": return data.days[(item[0] === "c" ? "s" : "f") + width(n)][at.weekday];
    case "d": return numeric(at.day);
    case "a": return data.periods[width(n)][at.hour < 12 ? "am" : "pm"];
    case "b": case "B": {
      const names = data.periods[width(n)];
      const list = items(whole);
      const usual = at.hour < 12 ? "am" : "pm";
      const name = periodOf(data, at, list.some((each) => each[0] === "m"), list.some((each) => each[0] === "s"));
      if (item[0] === "b") return (name === "noon" || name === "midnight" ? names[name] : undefined) ?? names[usual];
      return names[name] ?? names[periodOf({ rules: data.rules.filter((rule) => rule[2] !== null) }, at)] ?? names[usual];
    }
    case "h": return numeric(at.hour % 12 || 12);
    case "K": return numeric(at.hour % 12);
    case "H": return numeric(at.hour);
    case "k": return numeric(at.hour || 24);
    case "m": return numeric(at.minute);
    case "s": return numeric(at.second);
    case "S": return String(at.ms).padStart(3, "0").slice(0, n).padEnd(n, "0");
    case "z": return zoneText(at, data, n === 4 ? "l" : "s");
    case "v": return genericZoneText(at, data, n === 4 ? "l" : "s");
    case "O": return offsetText(at, data, n === 4);
  }
  return item;
}

function offsetText({ offset }, { zones }, long) {
  const total = Math.trunc(offset / 1000);
  const size = Math.abs(total);
  const [positive, negative] = zones.hourFormat.split(";");
  const hours = Math.floor(size / 3600), minutes = Math.floor(size / 60) % 60, seconds = size % 60;
  const [, before, separator, after] = /^(.*?)H+([^Hm]+)m+(.*)$/.exec(total < 0 ? negative : positive);
  let text = before + (long ? two(hours) : hours);
  if (long || minutes || seconds) text += separator + two(minutes) + (seconds ? separator + two(seconds) : "") + after;
  return zones.gmtFormat.replace("{0}", text);
}

function zoneText(at, data, kind) {
  const name = at.zone === "UTC" ? "Etc/UTC" : at.zone;
  const variant = name !== "Etc/UTC" && isDaylight(at.zone, at.time) ? "daylight" : "standard";
  const own = data.zones.zone[name]?.[kind]?.[variant];
  const meta = own === undefined ? metazone(at.zone, at.time) : undefined;
  return own ?? data.zones.meta[meta]?.[kind]?.[variant] ?? offsetText(at, data, kind === "l");
}

// Names without a distinction of daylight saving time. Node has more of them, for which it needs names of regions.
function genericZoneText(at, data, kind) {
  const meta = metazone(at.zone, at.time);
  const names = data.zones.meta[meta]?.[kind];
  if (at.zone === "UTC" || at.zone.startsWith("Etc/")) return offsetText(at, data, kind === "l");
  const changes = [-184, -92, 0, 92, 184].some((days) => isDaylight(at.zone, at.time + days * 86_400_000));
  const text = changes ? names?.generic : names?.standard ?? names?.generic;
  if (text === undefined || goldenZone(meta) !== at.zone) {
    refuse(`Intl.DateTimeFormat: the timeZoneName ${kind === "l" ? "longGeneric" : "shortGeneric"} of ${at.zone} is not available here; use short, long, shortOffset or longOffset`);
  }
  return text;
}

export function partsOf(pattern, at, data) {
  const parts = [];
  for (const item of items(pattern)) {
    const type = LETTERS[item[0]];
    const value = type === undefined ? unquoted(item) : formatted(item, at, data, pattern);
    if (type === undefined && parts.at(-1)?.type === "literal") parts.at(-1).value += value;
    else if (value !== "" || type !== undefined) parts.push({ type: type ?? "literal", value });
  }
  return parts;
}

function timeOf(value) {
  const time = value === undefined ? Date.now() : Number(value);
  if (!(Math.abs(time) <= MAX_TIME)) refuse("Invalid time value");
  return Math.trunc(time) + 0;
}

// Where CLDR has a narrow space, Node writes an ordinary one, except in parts and ranges.
const spaced = (text) => text.replaceAll("\u202f", " ");
const joined = (parts) => spaced(parts.map((part) => part.value).join(""));

export function formatTime(state, time) {
  return joined(partsOf(state.pattern, fieldsOf(time, state.zone), state.data));
}

export function DateTimeFormat() {
  const self = new.target === undefined ? Object.create(DateTimeFormat.prototype) : this;
  states.set(self, stateFor(getCanonicalLocales(arguments[0]), arguments[1], "any", "date", "Intl.DateTimeFormat"));
  return self;
}

describe(DateTimeFormat, "DateTimeFormat", {
  get format() {
    const state = stateIn(states, this, "DateTimeFormat", "format");
    return (state.bound ??= unnamed((date) => formatTime(state, timeOf(date))));
  },
  formatToParts(date) {
    const state = stateIn(states, this, "DateTimeFormat", "formatToParts");
    return partsOf(state.pattern, fieldsOf(timeOf(date), state.zone), state.data);
  },
  formatRange(startDate, endDate) {
    const parts = range(this, startDate, endDate, "formatRange");
    const text = parts.map((part) => part.value).join("");
    return parts.every((part) => part.source === "shared") ? spaced(text) : text;
  },
  formatRangeToParts(startDate, endDate) {
    return range(this, startDate, endDate, "formatRangeToParts");
  },
  resolvedOptions() {
    const state = stateIn(states, this, "DateTimeFormat", "resolvedOptions");
    const { dateStyle, timeStyle, cycle } = state;
    const shown = { locale: withKeywords(state.base, state.used), calendar: "gregory", numberingSystem: "latn", timeZone: state.zone };
    if (cycle !== undefined) Object.assign(shown, { hourCycle: cycle, hour12: cycle === "h11" || cycle === "h12" });
    if (dateStyle === undefined && timeStyle === undefined) Object.assign(shown, shownFields(state.pattern));
    if (dateStyle !== undefined) shown.dateStyle = dateStyle;
    if (timeStyle !== undefined) shown.timeStyle = timeStyle;
    return shown;
  },
});

// Return the options that a pattern stands for. As in Node, letters of quoted text count too.
function shownFields(pattern) {
  const shown = {};
  for (const name of SHOWN) {
    if (name === "fractionalSecondDigits") {
      const digits = Math.min(3, pattern.split("S").length - 1);
      if (digits > 0) shown[name] = digits;
      continue;
    }
    const found = SHOWN_LETTERS[name].find(([letters]) => pattern.includes(letters));
    if (found !== undefined) shown[name] = found[1];
  }
  return shown;
}

function range(self, start, end, method) {
  const state = stateIn(states, self, "DateTimeFormat", method);
  if (start === undefined || end === undefined) throw new TypeError("startDate or endDate cannot be undefined");
  const [from, to] = [timeOf(start), timeOf(end)].map((time) => fieldsOf(time, state.zone));
  return rangeParts(state, from, to, partsOf);
}
