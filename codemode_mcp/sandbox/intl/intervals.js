// The text of a range of dates, with the interval patterns of a locale, which are for dates or for times alone.
// https://www.unicode.org/reports/tr35/tr35-dates.html#intervalFormats
import { items, skeletonOf } from "./patterns.js";

const LEVELS = { G: 0, y: 10, Y: 10, Q: 20, M: 20, L: 20, w: 20, W: 30, d: 30, D: 30, E: 30, F: 30, c: 30, e: 30, a: 40, b: 40, B: 40, h: 50, H: 50, k: 50, K: 50, m: 60, s: 70, S: 80 };
const DAY_LEVEL = 40; // differences of this level and of higher ones are within a day

// Return the letter of the largest field that differs; undefined if there is none.
function difference(from, to) {
  const half = (at) => (at.hour < 12 ? 0 : 1);
  const values = (at) => [at.era, at.year, at.month, at.day, half(at), at.hour % 12, at.minute, at.second, at.ms];
  const [a, b] = [values(from), values(to)];
  return [..."GyMdahmsS"].find((_, i) => a[i] !== b[i]);
}

const filled = (form, zero, one) => form.replace(/\{([01])\}/g, (_, n) => (n === "0" ? zero : one));
const widths = (skeleton) => [...skeleton].reduce((found, char) => ({ ...found, [char]: (found[char] ?? 0) + 1 }), {});

// Return the nearest skeleton with interval patterns, and how it differs: 0 not, 1 in widths, 2 in letters, -1 in fields.
function nearest(intervals, skeleton) {
  const plain = skeleton.replaceAll("z", "v").replaceAll("k", "H").replaceAll("K", "h").replace(/[ab]/g, "");
  const wanted = widths(plain);
  let best, distance = Infinity, info = 0;
  for (const key of Object.keys(intervals)) {
    if (key === "intervalFormatFallback") continue;
    const own = widths(key);
    let sum = 0, kind = 1;
    for (const char of new Set([...Object.keys(wanted), ...Object.keys(own)])) {
      const a = wanted[char] ?? 0, b = own[char] ?? 0;
      if (a === b) continue;
      if (a === 0 || b === 0) {
        kind = -1;
        sum += 0x1000;
      } else sum += char === "M" && a <= 2 !== b <= 2 ? 0x100 : Math.abs(a - b);
    }
    if (sum < distance) [best, distance, info] = [key, sum, kind];
    if (sum === 0) {
      info = 0;
      break;
    }
  }
  return [best, plain !== skeleton && info !== -1 ? 2 : info];
}

// Split an interval pattern before the first field that occurs again.
function split(pattern) {
  const seen = new Set();
  let first = "";
  const list = items(pattern);
  for (let i = 0; i < list.length; i++) {
    if (/^[A-Za-z]/.test(list[i])) {
      if (seen.has(list[i][0])) return [first, list.slice(i).join("")];
      seen.add(list[i][0]);
    }
    first += list[i];
  }
  return [first, ""];
}

function adjusted(skeleton, best, pattern, info) {
  const replaced = (text, from, to) => items(text).map((item) => (item[0] === "'" ? item : item.replaceAll(from, to))).join("");
  if (info === 2) {
    if (skeleton.includes("z")) pattern = replaced(pattern, "v", "z");
    if (skeleton.includes("K")) pattern = replaced(pattern, "h", "K");
    if (skeleton.includes("k")) pattern = replaced(pattern, "H", "k");
    if (skeleton.includes("b")) pattern = replaced(pattern, "a", "b");
  }
  const wanted = widths(skeleton), own = widths(best);
  for (const char of "ab") if (pattern.includes(char)) own[char] ??= 1;
  return items(pattern).map((item) => {
    if (!/^[A-Za-z]/.test(item)) return item;
    const char = item[0] === "L" ? "M" : item[0];
    const more = (wanted[char] ?? 0) - (own[char] ?? 0);
    return own[char] === item.length && more > 0 ? item + item[0].repeat(more) : item;
  }).join("");
}

class Intervals {
  constructor({ data, generator, pattern, cycle }) {
    this.data = data;
    this.best = (skeleton) => generator.best(skeleton, cycle);
    this.patterns = {};
    const skeleton = skeletonOf(pattern);
    this.pattern = this.best(skeleton);
    const [date, plainDate, time, plainTime] = this.parts(this.withHour(skeleton));
    const found = this.separate(plainDate, plainTime);
    if (time === "") return;
    if (date === "") {
      for (const field of "dMy") this.patterns[field] = ["", this.best("yMd" + time)];
      this.patterns.G = ["", this.best("GyMd" + time)];
      return;
    }
    if (!found) return;
    let longer = skeleton;
    for (const field of "dMyG") {
      if (date.includes(field)) continue;
      longer = field + longer;
      this.patterns[field] = ["", this.best(longer)];
    }
    const single = this.best(date);
    for (const field of "ahm") {
      const range = this.patterns[field];
      if (range !== undefined && range[0] !== "") this.patterns[field] = split(filled(data.join, range.join(""), single));
    }
  }

  // Write the hour of a skeleton with the letter that the locale uses, and the period of the day beside it.
  withHour(skeleton) {
    const hour = /[hHkK]+/.exec(skeleton);
    if (hour === null) return skeleton;
    const period = /[abB]+/.exec(skeleton);
    const letters = items(this.best(hour[0][0])).filter((item) => item[0] !== "'").join("");
    const used = ["h", "K", "k"].find((char) => letters.includes(char)) ?? "H";
    const kind = ["b", "B"].find((char) => letters.includes(char)) ?? period?.[0][0] ?? "a";
    const size = (period?.[0].length ?? 0) >= 5 || hour[0].length >= 5 ? 5 : (period?.[0].length ?? 0) >= 3 || hour[0].length >= 3 ? 3 : 1;
    const both = used + (used === "h" || used === "K" ? kind.repeat(size) : "");
    return skeleton.replace(/[abB]+/, "").replace(/[hHkK]+/, both);
  }

  // Split a skeleton into its date and its time, each as it is and in the form of the keys of interval patterns.
  parts(skeleton) {
    const count = widths(skeleton);
    const date = [...skeleton].filter((char) => /[A-Za-z]/.test(char) && LEVELS[char] < DAY_LEVEL).join("");
    const time = [...skeleton].filter((char) => LEVELS[char] >= DAY_LEVEL || char === "z" || char === "v").join("");
    const month = count.M ?? 0, weekday = count.E ?? 0;
    const plainDate = date.replace(/[EdMy]/g, "") + "y".repeat(count.y ?? 0) + "M".repeat(month < 3 ? Math.min(month, 1) : Math.min(month, 5)) +
      "E".repeat(weekday <= 3 ? Math.min(weekday, 1) : Math.min(weekday, 5)) + (count.d ? "d" : "");
    const hour = /[hHkK]/.exec(time)?.[0] ?? "";
    const plainTime = time.replace(/[hHkKmzv]/g, "") + hour + ["m", "z", "v"].filter((char) => count[char]).join("");
    return [date, plainDate, time, plainTime];
  }

  separate(date, time) {
    let skeleton = time === "" ? date : time;
    let [best, info] = nearest(this.data.intervals, skeleton);
    if (best === undefined) return false;
    if (date !== "") this.date = this.best(date);
    if (time !== "") this.time = this.best(time);
    if (info === -1) return false;
    if (time !== "") {
      for (const field of "mha") this.set(field, skeleton, best, info);
      return true;
    }
    for (const field of "dMyG") {
      const extended = this.set(field, skeleton, best, info, true);
      if (extended !== undefined && field === "M") [skeleton, best] = extended;
    }
    return true;
  }

  set(field, skeleton, best, info, isDate = false) {
    const of = (key, letter) => {
      const found = this.data.intervals[key] ?? {};
      return letter === "a" ? found.a ?? found.B : letter === "h" ? found.h ?? found.H : found[letter];
    };
    let pattern = of(best, field);
    let extended;
    if (pattern === undefined) {
      if (![...best].some((char) => LEVELS[char] >= LEVELS[field])) return undefined;
      if (field === "a") {
        pattern = of(best, "h");
        if (pattern !== undefined) this.patterns.a = split(adjusted(skeleton, best, pattern, info));
        return undefined;
      }
      if (isDate) {
        extended = [field + skeleton, field + best];
        pattern = of(extended[1], field);
        if (pattern === undefined && info === 0) {
          const [other, kind] = nearest(this.data.intervals, extended[1]);
          if (other !== undefined && kind !== -1) [pattern, best, info] = [of(other, field), other, kind];
        }
      }
    }
    if (pattern === undefined) return undefined;
    this.patterns[field] = split(info === 0 ? pattern : adjusted(skeleton, best, pattern, info));
    return extended;
  }
}

const isIgnored = (pattern, field) => !items(pattern).some((item) => item[0] !== "B" && item[0] !== "b" && LEVELS[item[0]] >= LEVELS[field]);

export function rangeParts(state, from, to, partsOf) {
  const shared = () => partsOf(state.pattern, from, state.data).map((part) => ({ ...part, source: "shared" }));
  const field = difference(from, to);
  if (field === undefined) return shared();
  const intervals = (state.intervals ??= new Intervals(state));
  const [first, second] = intervals.patterns[field] ?? ["", ""];
  const parts = (pattern, at) => partsOf(pattern, at, state.data);
  const between = (pattern) => joined(state.data.intervals.intervalFormatFallback, parts(pattern, from), parts(pattern, to));
  if (first !== "") return sourced([...parts(first, from), ...(second === "" ? [] : parts(second, to))]);
  if (second === "" && isIgnored(intervals.pattern, field)) return shared();
  if (LEVELS[field] >= DAY_LEVEL && intervals.date !== undefined && intervals.time !== undefined) {
    return sourced(joined(state.data.join, between(intervals.time), parts(intervals.date, from)));
  }
  return sourced(between(second === "" ? intervals.pattern : second));
}

function joined(form, zero, one) {
  return form.split(/(\{[01]\})/).flatMap((text) => (text === "{0}" ? zero : text === "{1}" ? one : text === "" ? [] : [{ type: "literal", value: text }]));
}

// Add to each part whether it is of the start, of the end, or of both.
function sourced(parts) {
  const merged = [];
  for (const part of parts) {
    if (part.type === "literal" && merged.at(-1)?.type === "literal") merged.at(-1).value += part.value;
    else merged.push({ ...part });
  }
  const spans = [[Infinity, -1], [Infinity, -1]];
  merged.forEach((part, i) => {
    const again = part.type === "literal" ? -1 : merged.findIndex((other, j) => j > i && other.type === part.type);
    if (again < 0) return;
    for (const [span, at] of [[spans[0], i], [spans[1], again]]) {
      span[0] = Math.min(span[0], at);
      span[1] = Math.max(span[1], at);
    }
  });
  return merged.map((part, i) => ({
    ...part, source: ["startRange", "endRange"].find((_, n) => spans[n][0] <= i && i <= spans[n][1]) ?? "shared",
  }));
}
