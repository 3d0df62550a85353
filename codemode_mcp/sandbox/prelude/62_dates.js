// Dates as texts. The standard leaves all forms but its own to the engine, and programs are written for V8, so this reads
// what V8 reads, and nothing that it calls an invalid date. The glue reads the common forms by itself.
//
// A text is read as the form of the standard: `YYYY-MM-DDTHH:MM:SS.sssZ`, or a beginning of it. Where it stops being that
// before the `T`, the rest is read by looser rules, with the numbers that were read:
//   - Words before the first number are ignored, and so is text in parentheses.
//   - A number with a colon behind it is a part of the time, and one with a point behind it the seconds.
//   - A word that begins as a month is the month. AM and PM change the hour. Other words but zones are an error.
//   - A sign after a time or a zone begins an offset.
//   - Up to three other numbers are the day: month, day and year, or year, month and day if the first cannot be a day.
const MONTH_NAMES = "janfebmaraprmayjunjulaugsepoctnovdec";
const ZONE_HOURS = { __proto__: null, z: 0, ut: 0, utc: 0, gmt: 0, est: -5, edt: -4, cst: -6, cdt: -5, mst: -7, mdt: -6, pst: -8, pdt: -7 };
const SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff";
const NONE = -1;
const { fromCharCode } = NativeString;

function isSpace(c) {
  return c === 32 || (c >= 9 && c <= 13) || (c > 127 && stringIndexOf(SPACES, fromCharCode(c)) >= 0);
}

// Read the next token of a date: its kind is "1" for a number, "a" for a word, " " for a space, "" for the end, a sign or
// mark itself, or "?".
function nextPart(date) {
  const { text } = date;
  const from = date.at;
  let at = from + 1;
  let c = stringCharCodeAt(text, from); // NaN at the end
  if (c >= 48 && c <= 57) {
    let significant = 0;
    let number = 0;
    for (; c >= 48 && c <= 57; c = stringCharCodeAt(text, at++)) {
      if ((significant > 0 || c > 48) && ++significant <= 9) number = number * 10 + c - 48;
    }
    at -= 1;
    date.kind = "1";
    date.number = number;
  } else if (isSpace(c)) date.kind = " ";
  else if (c >= 65) {
    let word = "";
    for (; c >= 65 && !isSpace(c); c = stringCharCodeAt(text, at++)) if (word.length < 3) word += fromCharCode(c | 32);
    at -= 1;
    date.kind = "a";
    date.word = word;
  } else if (c === 40) {
    for (let depth = 1; depth > 0 && at < text.length; at++) {
      if (text[at] === "(") depth += 1;
      else if (text[at] === ")") depth -= 1;
    }
    date.kind = "?";
  } else if (c === c) date.kind = c === 45 ? "-" : c === 43 ? "+" : c === 58 ? ":" : c === 46 ? "." : c === 41 ? ")" : "?";
  else {
    at = from;
    date.kind = "";
  }
  date.from = from;
  date.at = at;
  date.length = at - from;
}

function take(date, kind) {
  if (date.kind !== kind) return false;
  nextPart(date);
  return true;
}

// Return a number of exactly so many digits, or NONE.
function digits(date, length, least, most) {
  const { number } = date;
  if (date.kind !== "1" || date.length !== length || number < least || number > most) return NONE;
  nextPart(date);
  return number;
}

function addDay(date, n) {
  date["day" + date.days] = n;
  date.days += 1;
  return date.days <= 3;
}

function addTime(date, n) {
  if (date.times === 4) return false;
  date["time" + date.times] = n;
  date.times += 1;
  return true;
}

function endTime(date, n) {
  addTime(date, n);
  date.times = 4;
}

function expectsTime(date, n) {
  return date.times === 3 ? n < 1000 : (date.times === 1 || date.times === 2) && n < 60;
}

function isZulu(date) {
  return date.kind === "a" && date.length === 1 && date.word === "z";
}

function fraction(date) {
  let { number, length } = date;
  for (; length < 3; length++) number *= 10;
  if (length > 9) length = 9;
  for (; length > 3; length--) number = mathFloor(number / 10);
  return number;
}

// Read the form of the standard: "whole", "broken", or "" where the looser rules continue with the next token.
function readStandard(date) {
  const start = date.at;
  const sign = date.kind;
  let year;
  if (sign === "-" || sign === "+") {
    nextPart(date);
    year = digits(date, 6, 0, 999999);
    if (year === NONE || (year === 0 && sign === "-")) {
      date.at = year === NONE ? start : date.from;
      date.kind = sign;
      return "";
    }
    if (sign === "-") year = -year;
  } else year = digits(date, 4, 0, 9999);
  if (year === NONE) return "";
  addDay(date, year);
  if (take(date, "-")) {
    const month = digits(date, 2, 1, 12);
    if (month === NONE) return "";
    addDay(date, month);
    if (take(date, "-")) {
      const day = digits(date, 2, 1, 31);
      if (day === NONE) return "";
      addDay(date, day);
    }
  }
  if (date.kind === "a" && date.length === 1 && date.word === "t") {
    nextPart(date);
    if (!readStandardTime(date)) return "broken";
  } else if (date.kind !== "") return "";
  else date.hour = date.minute = 0;
  date.standard = true;
  return "whole";
}

function readStandardTime(date) {
  const hour = digits(date, 2, 0, 24);
  const most = hour === 24 ? 0 : 59;
  if (hour === NONE || !take(date, ":")) return false;
  addTime(date, hour);
  const minute = digits(date, 2, 0, most);
  if (minute === NONE) return false;
  addTime(date, minute);
  if (take(date, ":")) {
    const second = digits(date, 2, 0, most);
    if (second === NONE) return false;
    addTime(date, second);
    if (take(date, ".")) {
      if (date.kind !== "1" || (hour === 24 && date.number > 0)) return false;
      addTime(date, fraction(date));
      nextPart(date);
    }
  }
  if (isZulu(date)) {
    date.hour = date.minute = 0;
    nextPart(date);
  } else if (date.kind === "+" || date.kind === "-") {
    date.sign = date.kind === "-" ? -1 : 1;
    nextPart(date);
    const both = digits(date, 4, 0, 2359);
    date.hour = both === NONE ? digits(date, 2, 0, 23) : mathFloor(both / 100);
    date.minute = both === NONE ? (date.hour !== NONE && take(date, ":") ? digits(date, 2, 0, 59) : NONE) : both % 100;
    if (date.minute === NONE || date.minute > 59) return false;
  }
  return date.kind === "";
}

// Read the rest by the looser rules. Return false for what is no date.
function readLoosely(date) {
  let hasNumber = date.days > 0;
  while (date.kind !== "") {
    const { kind, number, word, length } = date;
    nextPart(date);
    if (kind === "1") {
      hasNumber = true;
      if (date.kind === ":") {
        nextPart(date);
        if (take(date, ":")) {
          if (date.times > 0) return false;
          addTime(date, number);
          addTime(date, 0);
        } else {
          if (!addTime(date, number)) return false;
          take(date, ".");
        }
        continue;
      }
      if (take(date, ".") && expectsTime(date, number)) {
        addTime(date, number);
        if (date.kind !== "1") return false;
        endTime(date, fraction(date));
        nextPart(date);
      } else if (date.hour !== NONE && date.minute === NONE && number < 60) date.minute = number;
      else if (expectsTime(date, number)) {
        endTime(date, number);
        if (stringIndexOf(" +-", date.kind) < 0 && !isZulu(date)) return false;
      } else {
        if (!addDay(date, number)) return false;
        take(date, "-");
      }
    } else if (kind === "a") {
      const place = word.length === 3 ? stringIndexOf(MONTH_NAMES, word) : NONE;
      const zone = length <= 3 ? ZONE_HOURS[word] : undefined;
      if (place >= 0 && place % 3 === 0) {
        date.month = place / 3 + 1;
        take(date, "-");
      } else if (length === 2 && (word === "am" || word === "pm") && date.times > 0) date.noon = word === "pm" ? 12 : 0;
      else if (zone !== undefined && hasNumber) {
        date.sign = zone < 0 ? -1 : 1;
        date.hour = zone < 0 ? -zone : zone;
        date.minute = 0;
      } else if (hasNumber || date.kind === "1") return false;
    } else if ((kind === "+" || kind === "-") && (date.times > 0 || (date.hour === 0 && date.minute === 0))) {
      date.sign = kind === "-" ? -1 : 1;
      const size = date.kind === "1" ? date.length : 0;
      const n = size > 0 ? date.number : 0;
      if (size > 0) nextPart(date);
      hasNumber = true;
      if (date.kind === ":") {
        date.hour = n;
        date.minute = NONE;
      } else if (size === 0 || size > 4) return false;
      else {
        date.hour = size > 2 ? mathFloor(n / 100) : n;
        date.minute = size > 2 ? n % 100 : 0;
      }
    } else if (hasNumber && (kind === "+" || kind === "-" || kind === ")")) return false;
  }
  return true;
}

// Return the milliseconds of what was read, in UTC, which is also the local time.
function timeOf(date) {
  if (date.days === 0) return NaN;
  const { day0, day1, day2, time1, time2, time3, standard } = date;
  const yearFirst = standard || day0 < 1 || day0 > 31;
  const named = date.month !== NONE;
  let year = yearFirst ? day0 : named ? day1 : day2;
  const month = named ? date.month : yearFirst ? day1 : day0;
  const day = named ? (yearFirst ? day1 : day0) : yearFirst ? day2 : day1;
  if (!standard && year >= 0 && year < 100) year += year < 50 ? 2000 : 1900;
  let hour = date.time0;
  if (date.noon !== NONE) {
    if (hour > 12) return NaN;
    hour = (hour % 12) + date.noon;
  }
  const inDay = hour < 24 && time1 < 60 && time2 < 60 && time3 < 1000;
  if (month < 1 || month > 12 || day < 1 || day > 31 || !(inDay || (hour === 24 && time1 + time2 + time3 === 0))) return NaN;
  // A year begins in March here, so that a leap day is its last one.
  const from = month < 3 ? year - 1 : year;
  const days =
    from * 365 + mathFloor(from / 4) - mathFloor(from / 100) + mathFloor(from / 400) +
    mathFloor((153 * (month < 3 ? month + 9 : month - 3) + 2) / 5) + day - 719469;
  const offset = ((date.hour === NONE ? 0 : date.hour) * 60 + (date.minute === NONE ? 0 : date.minute)) * date.sign;
  const time = days * 86400000 + ((hour * 60 + time1 - offset) * 60 + time2) * 1000 + time3;
  return time >= -8.64e15 && time <= 8.64e15 ? time : NaN;
}

function textOf(value) {
  if (typeof value === "symbol") throw new NativeTypeError("cannot convert symbol to string");
  return NativeString(value);
}

function parseDate(value) {
  const date = {
    __proto__: null, text: textOf(value), at: 0, from: 0, kind: "", number: 0, word: "", length: 0,
    days: 0, day0: 1, day1: 1, day2: 1, day3: 1, month: NONE, times: 0, time0: 0, time1: 0, time2: 0, time3: 0,
    noon: NONE, sign: 1, hour: NONE, minute: NONE, standard: false,
  };
  nextPart(date);
  const read = readStandard(date);
  return read === "broken" || (read === "" && !readLoosely(date)) ? NaN : timeOf(date);
}

setFunction(13, parseDate);

// The text of a date, which the engine gives without the name of the zone.
setFunction(14, (text) => (text === "Invalid Date" ? text : text + " (Coordinated Universal Time)"));

setFunction(19, Date.prototype.setTime);
