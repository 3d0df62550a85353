// Time zones: offsets, their names and the metazones that locales have names for.
import { zones } from "./data.js";

let data;
const loaded = new Map();

function all() {
  return (data ??= JSON.parse(zones));
}

export function zoneNames() {
  return Object.keys(all().offsets).filter((name) => !/^(?:Etc\/|UTC|GMT)/.test(name)).sort();
}

let byCase;
// Return the name that Node uses for a zone; undefined if there is no such zone.
export function canonicalZone(name) {
  if (name === "UTC") return name;
  const { offsets, aliases } = all();
  byCase ??= new Map([...Object.keys(offsets), ...Object.keys(aliases)].map((each) => [each.toLowerCase(), each]));
  const found = byCase.get(name.toLowerCase());
  if (found === undefined) return undefined;
  const zone = aliases[found] ?? found;
  return zone === "Etc/UTC" || zone === "Etc/GMT" ? "UTC" : zone;
}

const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX";
// Read a number in base 60 with an optional fraction, in minutes.
function minutes(text) {
  const negative = text[0] === "-";
  const [whole, part = ""] = (negative ? text.slice(1) : text).split(".");
  let value = 0;
  for (const digit of whole) value = value * 60 + DIGITS.indexOf(digit);
  for (let i = 0, unit = 1 / 60; i < part.length; i++, unit /= 60) value += DIGITS.indexOf(part[i]) * unit;
  return negative ? -value : value;
}

const DAY = 86_400_000;

// Return the changes of a zone: the times from which the offsets are valid, in ms.
function changes(zone) {
  const name = zone === "UTC" ? "Etc/UTC" : zone;
  let found = loaded.get(name);
  if (found === undefined) {
    const [offsetTexts, indices, untils] = all().offsets[name].split("|");
    const offsets = offsetTexts.split(" ").map((text) => Math.round(-minutes(text) * 60) * 1000);
    let at = 0;
    const times = untils === "" ? [] : untils.split(" ").map((text) => (at += Math.round(minutes(text) * 60) * 1000));
    const steps = [...indices].map((digit) => offsets[DIGITS.indexOf(digit)]);
    loaded.set(name, (found = { times, steps, rules: yearly(times, steps) }));
  }
  return found;
}

// Return the two changes of each year that continue after the last known one; undefined if there are none. A change is
// on the nth or the last weekday of a month, at a time of the clock before it.
function yearly(times, steps) {
  const last = times.length - 1;
  if (last < 20 || new Date(times[last]).getUTCFullYear() !== 2037) return undefined;
  const rules = [last - 1, last].map((index) => {
    const nearby = [];
    for (let i = index; i > index - 16; i -= 2) nearby.push(new Date(times[i] + steps[i]));
    const [date] = nearby;
    const nth = nearby.every((each) => Math.ceil(each.getUTCDate() / 7) === Math.ceil(date.getUTCDate() / 7));
    return {
      month: date.getUTCMonth(), weekday: date.getUTCDay(), nth: nth ? Math.ceil(date.getUTCDate() / 7) : 5,
      clock: (times[index] + steps[index]) % DAY, before: steps[index], after: steps[index + 1],
    };
  });
  return rules;
}

function changeOf(rule, year) {
  const first = Date.UTC(year, rule.month, 1);
  let day = 1 + ((rule.weekday - new Date(first).getUTCDay() + 7) % 7) + (rule.nth - 1) * 7;
  while (day > new Date(Date.UTC(year, rule.month + 1, 0)).getUTCDate()) day -= 7;
  return first + (day - 1) * DAY + rule.clock - rule.before;
}

// Return the offset at a time, the offsets before and after it, and for how long it is valid.
function stepAt(zone, time) {
  if (zone === "UTC") return { offset: 0 };
  const { times, steps, rules } = changes(zone);
  if (rules !== undefined && time >= times[times.length - 1]) {
    const year = new Date(time).getUTCFullYear();
    const list = [year - 1, year, year + 1].flatMap((y) => rules.map((rule) => ({ at: changeOf(rule, y), ...rule }))).sort((a, b) => a.at - b.at);
    const next = list.findIndex(({ at }) => at > time);
    return { offset: list[next].before, before: list[next - 1].before, after: list[next].after, length: list[next].at - list[next - 1].at };
  }
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return { offset: steps[low], before: steps[low - 1], after: steps[low + 1], length: times[low] - times[low - 1] };
}

// Return the offset of a zone at a time, in ms.
export function offsetAt(zone, time) {
  return stepAt(zone, time).offset;
}

// Return whether daylight saving time is in force: for some months, the clock is ahead of the time before and after.
export function isDaylight(zone, time) {
  const { offset, before, after, length } = stepAt(zone, time);
  return offset > before && offset > after && length < 300 * DAY;
}

// Return the metazone of a zone at a time. There is none before 1970.
export function metazone(zone, time) {
  if (time < 0) return undefined;
  for (const [name, from, to] of all().meta[zone === "UTC" ? "Etc/UTC" : zone] ?? []) {
    if ((from === "" || Date.parse(from.replace(" ", "T") + "Z") <= time) && (to === "" || time < Date.parse(to.replace(" ", "T") + "Z"))) return name;
  }
  return undefined;
}

export function goldenZone(meta) {
  return all().golden[meta];
}
