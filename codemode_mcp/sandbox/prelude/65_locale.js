// Text for people, as en-US has it. The engine knows no locales: it ignores what toLocaleString() is given, and prints
// something else without a word. Here what cannot be done is refused.
const OTHER_FORMS = "for other forms use toISOString(), toFixed() and padStart()";
const NativeDate = Date;
// Throws for what is no typed array, and for one whose buffer is detached.
const validTypedArray = uncurry(getPrototypeOf(Uint8Array.prototype).keys);
const utcParts = objectCreate(null);
for (const part of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"]) {
  utcParts[part] = uncurry(Date.prototype["getUTC" + part]);
}

// By name: [offset, from, offset, from, offset ...] in seconds, of the zones that the program's text names. From the host.
let zones = objectCreate(null);

function setZones(given) {
  zones = given;
}

function checkLocale(method, locales) {
  const locale = isArray(locales) ? (locales.length === 0 ? undefined : locales[0]) : locales;
  if (locale === undefined || locale === "en-US" || locale === "en") return;
  throw new NativeRangeError(method + "() knows the locale en-US only, not " + clip(toJsonText(locale), 100) + "; " + OTHER_FORMS);
}

// The value of the one option that there is; any other is refused.
function onlyOption(method, given, known) {
  if (given === undefined) return undefined;
  if (given === null || typeof given !== "object") throw new NativeTypeError(method + "() takes its options as an object");
  const names = objectKeys(given);
  for (let i = 0; i < names.length; i++) {
    if (names[i] === known || given[names[i]] === undefined) continue;
    const there = known === null ? "there are no options here" : "there is " + known + " only";
    throw new NativeRangeError(method + "() does not know the option " + clip(names[i], 100) + ": " + there + "; " + OTHER_FORMS);
  }
  return known === null ? undefined : given[known];
}

function rounded(digits) {
  let end = digits.length - 1;
  let zeros = "";
  while (end >= 0 && stringCharCodeAt(digits, end) === 57) {
    zeros += "0";
    end -= 1;
  }
  if (end < 0) return "1" + zeros;
  return stringSlice(digits, 0, end) + (stringCharCodeAt(digits, end) - 47) + zeros;
}

function numberText(n) {
  if (n !== n) return "NaN";
  const sign = n < 0 || 1 / n < 0 ? "-" : "";
  const size = n < 0 ? -n : n;
  if (size === 1 / 0) return sign + "∞";
  let digits = "" + size;
  let point = 0;
  const exponent = stringIndexOf(digits, "e");
  if (exponent >= 0) {
    point = +stringSlice(digits, exponent + 1);
    digits = stringSlice(digits, 0, exponent);
  }
  const dot = stringIndexOf(digits, ".");
  point += dot < 0 ? digits.length : dot;
  if (dot >= 0) digits = stringSlice(digits, 0, dot) + stringSlice(digits, dot + 1);
  for (; point < 1; point++) digits = "0" + digits;
  while (digits.length < point) digits += "0";
  const places = point + 3;
  if (digits.length > places) {
    const up = stringCharCodeAt(digits, places) >= 53;
    digits = stringSlice(digits, 0, places);
    if (up) digits = rounded(digits);
    point += digits.length - places;
  }
  let end = digits.length;
  while (end > point && stringCharCodeAt(digits, end - 1) === 48) end -= 1;
  return sign + withThousands(stringSlice(digits, 0, point)) + (end > point ? "." + stringSlice(digits, point, end) : "");
}

function bigIntText(n) {
  const text = bigIntToString(n);
  return n < 0n ? "-" + withThousands(stringSlice(text, 1)) : withThousands(text);
}

function offsetAt(method, zone, time) {
  if (zone === undefined || zone === "UTC" || zone === "Etc/UTC" || zone === "GMT") return 0;
  if (typeof zone !== "string") throw new NativeTypeError(method + "() takes timeZone as a string");
  const changes = zones[zone];
  if (changes === undefined) {
    throw new NativeRangeError(
      method + "(): the time zone " + clip(jsonStringify(zone), 100) +
      ' is not known; write its whole name in the program itself, such as "America/New_York"',
    );
  }
  let low = 0;
  let high = (changes.length - 1) / 2; // the last change that is not after that time is among these
  while (low < high) {
    const middle = mathFloor((low + high + 1) / 2);
    if (changes[2 * middle - 1] * 1000 <= time) low = middle;
    else high = middle - 1;
  }
  return changes[2 * low] * 1000;
}

function twoDigits(n) {
  return n < 10 ? "0" + n : "" + n;
}

function dateText(method, date, locales, given, day, clock) {
  const time = dateGetTime(date);
  checkLocale(method, locales);
  const offset = offsetAt(method, onlyOption(method, given, "timeZone"), time);
  if (time !== time) return "Invalid Date";
  const there = new NativeDate(time + offset);
  const year = utcParts.FullYear(there);
  const hours = utcParts.Hours(there);
  const days = utcParts.Month(there) + 1 + "/" + utcParts.Date(there) + "/" + (year > 0 ? year : 1 - year);
  const hour = hours % 12 === 0 ? 12 : hours % 12;
  const times =
    hour + ":" + twoDigits(utcParts.Minutes(there)) + ":" + twoDigits(utcParts.Seconds(there)) + (hours < 12 ? " AM" : " PM");
  return day && clock ? days + ", " + times : day ? days : times;
}

function listText(list, length, locales, given) {
  let text = "";
  for (let i = 0; i < length; i++) {
    const item = list[i];
    text += (i === 0 ? "" : ",") + (item === undefined || item === null ? "" : NativeString(item.toLocaleString(locales, given)));
  }
  return text;
}

function locale(prototype, methods) {
  for (const name of objectKeys(methods)) defineProperty(prototype, name, hidden(freeze(methods[name])));
}

locale(Number.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    const n = numberValueOf(this);
    checkLocale("toLocaleString", locales);
    onlyOption("toLocaleString", given, null);
    return numberText(n);
  },
});
locale(BigInt.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    const n = bigIntValueOf(this);
    checkLocale("toLocaleString", locales);
    onlyOption("toLocaleString", given, null);
    return bigIntText(n);
  },
});
locale(Date.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    return dateText("toLocaleString", this, locales, given, true, true);
  },
  toLocaleDateString(locales = undefined, given = undefined) {
    return dateText("toLocaleDateString", this, locales, given, true, false);
  },
  toLocaleTimeString(locales = undefined, given = undefined) {
    return dateText("toLocaleTimeString", this, locales, given, false, true);
  },
});
locale(Array.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    return listText(this, this.length, locales, given);
  },
});
locale(getPrototypeOf(Uint8Array.prototype), {
  toLocaleString(locales = undefined, given = undefined) {
    validTypedArray(this);
    return listText(this, typedArrayLength(this), locales, given);
  },
});
