// The choice of date patterns for skeletons, as ICU makes it: the fields of all patterns of a locale are compared with the
// requested ones, and what is missing is appended. https://www.unicode.org/reports/tr35/tr35-dates.html#availableFormats_appendItems
const NARROW = -0x101, SHORTER = -0x102, SHORT = -0x103, LONG = -0x104, NUMERIC = 0x100, DELTA = 0x10;
const EXTRA = 0x10000, MISSING = 0x1000;
const ERA = 0, YEAR = 1, MONTH = 3, WEEKDAY = 6, DAY = 9, PERIOD = 10, HOUR = 11, MINUTE = 12, SECOND = 13, FRACTION = 14, ZONE = 15;
const COUNT = 16;
const DATE_FIELDS = (1 << PERIOD) - 1;
const ALL_FIELDS = (1 << COUNT) - 1;

// Rows by letter: field, type, and the smallest length for which the row is used.
const texts = (field, less, lengths = [1, 4, 5]) => [[field, SHORT - less * DELTA, lengths[0]], [field, LONG - less * DELTA, lengths[1]], [field, NARROW - less * DELTA, lengths[2]]];
const ROWS = {
  G: texts(ERA, 0),
  y: [[YEAR, NUMERIC, 1]], Y: [[YEAR, NUMERIC + DELTA, 1]], u: [[YEAR, NUMERIC + 2 * DELTA, 1]],
  Q: [[2, NUMERIC, 1], ...texts(2, 0, [3, 4, 5])],
  M: [[MONTH, NUMERIC, 1], ...texts(MONTH, 0, [3, 4, 5])],
  L: [[MONTH, NUMERIC + DELTA, 1], ...texts(MONTH, 1, [3, 4, 5])],
  w: [[4, NUMERIC, 1]], W: [[5, NUMERIC, 1]],
  E: [...texts(WEEKDAY, 0), [WEEKDAY, SHORTER, 6]],
  c: [[WEEKDAY, NUMERIC + 2 * DELTA, 1], ...texts(WEEKDAY, 2, [3, 4, 5]), [WEEKDAY, SHORTER - 2 * DELTA, 6]],
  e: [[WEEKDAY, NUMERIC + DELTA, 1], ...texts(WEEKDAY, 1, [3, 4, 5]), [WEEKDAY, SHORTER - DELTA, 6]],
  d: [[DAY, NUMERIC, 1]], D: [[7, NUMERIC, 1]], F: [[8, NUMERIC, 1]],
  a: texts(PERIOD, 0), b: texts(PERIOD, 1), B: texts(PERIOD, 3),
  H: [[HOUR, NUMERIC + 10 * DELTA, 1]], k: [[HOUR, NUMERIC + 11 * DELTA, 1]], h: [[HOUR, NUMERIC, 1]], K: [[HOUR, NUMERIC + DELTA, 1]],
  m: [[MINUTE, NUMERIC, 1]], s: [[SECOND, NUMERIC, 1]], S: [[FRACTION, NUMERIC, 1]],
  v: [[ZONE, SHORT - 2 * DELTA, 1], [ZONE, LONG - 2 * DELTA, 4]],
  z: [[ZONE, SHORT, 1], [ZONE, LONG, 4]],
  O: [[ZONE, SHORT - DELTA, 1], [ZONE, LONG - DELTA, 4]],
};
export const CYCLES = { h11: "K", h12: "h", h23: "H", h24: "k" };
const CANONICAL = "GyQMwWEDFdaHmsSv";
const APPEND = ["Era", "Year", "Quarter", "Month", "Week", "*", "Day-Of-Week", "*", "*", "Day", "*", "Hour", "Minute", "Second", "*", "Timezone"];
const FIELDS = ["era", "year", "*", "month", "week", "*", "weekday", "*", "*", "day", "dayperiod", "hour", "minute", "second", "*", "zone"];
const OTHER_ITEM = "{0} \u251c{2}: {1}\u2524";

function rowOf(item) {
  const rows = ROWS[item[0]];
  return rows?.findLast((row, i) => i === 0 || row[2] <= item.length);
}

// Split a pattern into fields, such as `MMM`, and literals, which are quoted if they have letters.
export function items(pattern) {
  return pattern.match(/([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+/g) ?? [];
}

const isField = (item) => /^[A-Za-z]/.test(item);

class Skeleton {
  constructor(pattern) {
    this.types = new Array(COUNT).fill(0);
    this.chars = new Array(COUNT).fill("");
    this.lengths = new Array(COUNT).fill(0);
    this.baseLengths = new Array(COUNT).fill(0);
    for (const item of items(pattern)) {
      const row = isField(item) ? rowOf(item) : undefined;
      if (row !== undefined) this.set(row[0], item[0], item.length, row);
    }
    if (this.lengths[MINUTE] && this.lengths[FRACTION] && !this.lengths[SECOND]) this.set(SECOND, "s", 1, ROWS.s[0]);
    if (this.lengths[HOUR]) {
      if (this.chars[HOUR] === "h" || this.chars[HOUR] === "K") {
        if (!this.lengths[PERIOD]) this.set(PERIOD, "a", 1, ROWS.a[0]);
      } else this.lengths[PERIOD] = this.types[PERIOD] = this.baseLengths[PERIOD] = 0;
    }
  }
  set(field, char, length, row) {
    this.chars[field] = char;
    this.lengths[field] = length;
    this.baseLengths[field] = row[2];
    this.types[field] = row[1] > 0 ? row[1] + length : row[1];
  }
  written(lengths) {
    let text = "";
    for (let i = 0; i < COUNT; i++) text += this.chars[i].repeat(lengths[i]);
    return text;
  }
  get original() {
    return this.written(this.lengths);
  }
  get base() {
    return this.written(this.baseLengths);
  }
  get mask() {
    return this.types.reduce((mask, type, i) => (type ? mask | (1 << i) : mask), 0);
  }
}

// Return the fields of a pattern in the order of skeletons.
export function skeletonOf(pattern) {
  const skeleton = new Skeleton(pattern);
  const text = skeleton.original;
  return items(pattern).some((item) => item[0] === "a") || skeleton.chars[PERIOD] !== "a" ? text : text.replace("a", "");
}

const generators = new Map();

export class PatternGenerator {
  constructor(data, decimal) {
    this.data = data;
    this.decimal = decimal;
    this.elements = [];
    for (const char of CANONICAL) this.add(char, undefined);
    for (const pattern of [...data.time, ...data.date]) this.add(pattern, undefined);
    for (const [key, pattern] of data.available) this.add(pattern, key);
    const order = (element) => element.base.charCodeAt(0);
    this.elements.sort((a, b) => order(a) - order(b));
  }

  static of(data, decimal) {
    let found = generators.get(data);
    if (found === undefined) generators.set(data, (found = new PatternGenerator(data, decimal)));
    return found;
  }

  add(pattern, specified) {
    const skeleton = new Skeleton(specified ?? pattern);
    const { base, original } = skeleton;
    if (base === "") return;
    const sameBase = this.elements.find((element) => element.base === base);
    if (sameBase !== undefined && !sameBase.specified && specified === undefined) return;
    const same = this.elements.find((element) => element.original === original && element.base[0] === base[0]);
    if (same !== undefined && (specified === undefined || same.specified)) return;
    const duplicate = this.elements.find((element) => element.base === base && element.skeleton.types.every((type, i) => type === skeleton.types[i]));
    if (duplicate !== undefined) {
      duplicate.pattern = pattern;
      duplicate.specified = specified !== undefined;
    } else this.elements.push({ base, original, skeleton, pattern, specified: specified !== undefined });
  }

  // Return the nearest pattern for those fields of a skeleton that are in a mask.
  nearest(wanted, mask) {
    let best;
    for (const element of this.elements) {
      let distance = 0, missing = 0, extra = 0;
      for (let i = 0; i < COUNT; i++) {
        const own = mask & (1 << i) ? wanted.types[i] : 0;
        const other = element.skeleton.types[i];
        if (own === other) continue;
        if (own === 0) {
          distance += EXTRA;
          extra |= 1 << i;
        } else if (other === 0) {
          distance += MISSING;
          missing |= 1 << i;
        } else distance += Math.abs(own - other);
      }
      if (best === undefined || distance < best.distance || (distance === best.distance && best.missing < missing)) {
        // The skeleton of the first element with this text, as for the pattern.
        const first = this.elements.find((each) => each.original === element.original && each.base[0] === element.base[0]);
        best = { distance, missing, extra, pattern: first.pattern, specified: first.specified ? first.skeleton : undefined };
        if (distance === 0) break;
      }
    }
    return best;
  }

  // Give the fields of a pattern the widths that are wanted.
  adjusted(pattern, specified, wanted, fixFraction = false) {
    return items(pattern).map((item) => {
      const row = isField(item) ? rowOf(item) : undefined;
      if (row === undefined) return item;
      const [field, type] = row;
      if (fixFraction && field === SECOND) return item + this.decimal + wanted.chars[FRACTION].repeat(wanted.lengths[FRACTION]);
      if (wanted.types[field] === 0) return item;
      const char = wanted.chars[field];
      let length = wanted.lengths[field];
      if (char === "E" && length < 3) length = 3;
      let adjusted = length;
      if (field === MINUTE || field === SECOND || (field === HOUR && !this.matchesHour)) adjusted = item.length;
      else if (specified !== undefined && char !== "c" && char !== "e") {
        const numeric = type > 0, wantedNumeric = wanted.types[field] > 0;
        if (specified.lengths[field] === length || numeric !== wantedNumeric) adjusted = item.length;
      }
      let used = field !== HOUR && field !== MONTH && field !== WEEKDAY && (field !== YEAR || char === "Y") ? char : item[0];
      if (used === "E" && adjusted < 3) used = "e";
      if (field === HOUR) {
        const usual = this.usualHour;
        if (char === usual) used = usual;
        else if (char === "h" && usual === "K") used = "K";
        else if (char === "H" && usual === "k") used = "k";
        else if (char === "k" && usual === "H") used = "H";
        else if (char === "K" && usual === "h") used = "h";
      }
      return used.repeat(adjusted);
    }).join("");
  }

  appended(wanted, mask) {
    if (mask === 0) return "";
    let found = this.nearest(wanted, mask);
    let specified = found.specified;
    let result = this.adjusted(found.pattern, specified, wanted);
    let missing = found.missing;
    let last = 0;
    while (missing !== 0 && missing !== last) {
      const seconds = (1 << SECOND) | (1 << FRACTION);
      if ((missing & seconds) === 1 << FRACTION && (mask & seconds) === seconds) {
        result = this.adjusted(result, specified, wanted, true);
        missing &= ~(1 << FRACTION);
        continue;
      }
      const before = missing;
      // As in ICU, one field is appended, and others are left out.
      found = this.nearest(wanted, missing);
      specified = found.specified;
      const part = this.adjusted(found.pattern, specified, wanted);
      missing = found.missing;
      const gained = before & ~missing;
      const top = gained === 0 ? 0 : Math.min(31 - Math.clz32(gained), ZONE);
      const format = this.data.append[APPEND[top]] ?? OTHER_ITEM;
      const name = "'" + (this.data.fields[FIELDS[top]] ?? "F" + top) + "'";
      result = format.replace(/\{([012])\}/g, (_, n) => [result, part, name][n]);
      last = missing;
    }
    return result;
  }

  // Return the pattern for a skeleton. With `cycle`, the hour is as wide as in the pattern of the locale.
  best(text, cycle) {
    this.matchesHour = cycle === undefined;
    this.usualHour = CYCLES[cycle] ?? this.data.hour;
    const wanted = new Skeleton(text);
    const whole = this.nearest(wanted, ALL_FIELDS);
    if (whole.missing === 0 && whole.extra === 0) return this.adjusted(whole.pattern, whole.specified, wanted);
    const needed = wanted.mask;
    const date = this.appended(wanted, needed & DATE_FIELDS);
    const time = this.appended(wanted, needed & ALL_FIELDS & ~DATE_FIELDS);
    if (date === "") return time;
    if (time === "") return date;
    const month = wanted.baseLengths[MONTH];
    const style = month === 4 ? (wanted.baseLengths[WEEKDAY] > 0 ? 0 : 1) : month === 3 ? 2 : 3;
    return this.data.both[style].replace(/\{([01])\}/g, (_, n) => (n === "1" ? date : time));
  }
}
