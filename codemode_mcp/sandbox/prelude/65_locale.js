// Text for people, in the form of en-US. The engine has no locales: its toLocaleString() ignores the arguments and
// silently returns something else. Here, arguments that are not supported are refused. A program whose text has such
// arguments starts with the bundle of `Intl`, which replaces these methods. So only a call that the text does not show
// gets here with other arguments.
const OTHER_FORMS = "other forms are there for programs whose text has the call itself, such as x.toLocaleString(locale, options)";
// Throw for a value that is not a typed array, and for one with a detached buffer.
const validTypedArray = uncurry(getPrototypeOf(Uint8Array.prototype).keys);
const { dateText } = natives;

// Time zones by name, from the host: [offset, from, offset, from, offset ...] in seconds, for those that the text of
// the program names.
let zones = objectCreate(null);

function setZones(given) {
  zones = given;
}

function checkLocale(method, locales, instead = OTHER_FORMS) {
  const locale = isArray(locales) ? (locales.length === 0 ? undefined : locales[0]) : locales;
  if (locale === undefined || locale === "en-US" || locale === "en") return;
  throw new NativeRangeError(method + "() knows the locale en-US only, not " + clip(toJsonText(locale), 100) + "; " + instead);
}

// Return the options of these names, each read once. Any other option is refused.
function someOptions(method, given, known, instead = OTHER_FORMS) {
  const found = objectCreate(null);
  if (given === undefined) return found;
  if (given === null || typeof given !== "object") throw new NativeTypeError(method + "() takes its options as an object");
  const names = objectKeys(given);
  for (let i = 0; i < names.length; i++) {
    const value = given[names[i]];
    if (value === undefined) continue;
    if (known[names[i]] === undefined) {
      const there = objectKeys(known);
      let list = "";
      for (let j = 0; j < there.length; j++) list += (j === 0 ? "" : " and ") + there[j];
      throw new NativeRangeError(
        method + "() does not know the option " + clip(names[i], 100) + ": " +
        (list === "" ? "there are no options here" : "there is " + list + " only") + "; " + instead,
      );
    }
    found[names[i]] = value;
  }
  return found;
}

const ZONE_ONLY = { __proto__: null, timeZone: true };
const DIGITS = { __proto__: null, minimumFractionDigits: true, maximumFractionDigits: true };
const NO_OPTIONS = objectCreate(null);

function digitCount(method, name, v, otherwise) {
  if (v === undefined) return otherwise;
  const n = +v;
  if (!(n >= 0 && n <= 100)) throw new NativeRangeError(method + "() takes " + name + " from 0 to 100");
  return mathFloor(n);
}

// Return the minimum and maximum of decimals. If only one is set, the other is as in `Intl.NumberFormat`.
function decimals(method, given) {
  const options = someOptions(method, given, DIGITS);
  const least = digitCount(method, "minimumFractionDigits", options.minimumFractionDigits, undefined);
  const most = digitCount(method, "maximumFractionDigits", options.maximumFractionDigits, undefined);
  if (least !== undefined && most !== undefined && least > most) {
    throw new NativeRangeError(method + "(): minimumFractionDigits is more than maximumFractionDigits");
  }
  return [least ?? 0, most ?? (least > 3 ? least : 3)];
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

function numberText(n, least, most) {
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
  const places = point + most;
  if (digits.length > places) {
    const up = stringCharCodeAt(digits, places) >= 53;
    digits = stringSlice(digits, 0, places);
    if (up) digits = rounded(digits);
    point += digits.length - places;
  }
  let end = digits.length;
  while (end > point && stringCharCodeAt(digits, end - 1) === 48) end -= 1;
  let decimals = stringSlice(digits, point, end);
  while (decimals.length < least) decimals += "0";
  return sign + withThousands(stringSlice(digits, 0, point)) + (decimals === "" ? "" : "." + decimals);
}

function bigIntText(n, least) {
  let decimals = "";
  while (decimals.length < least) decimals += "0";
  return grouped(bigIntToString(n)) + (decimals === "" ? "" : "." + decimals);
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
  let high = (changes.length - 1) / 2; // the last change up to that time is between low and high
  while (low < high) {
    const middle = mathFloor((low + high + 1) / 2);
    if (changes[2 * middle - 1] * 1000 <= time) low = middle;
    else high = middle - 1;
  }
  return changes[2 * low] * 1000;
}

const DAY = 1;
const CLOCK = 2;

function localDateText(method, date, locales, given, parts) {
  const time = dateGetTime(date);
  let offset = 0;
  if (locales !== undefined || given !== undefined) {
    checkLocale(method, locales);
    offset = offsetAt(method, someOptions(method, given, ZONE_ONLY).timeZone, time);
  }
  return time !== time ? "Invalid Date" : dateText(time + offset, parts);
}

// The engine's own function calls toLocaleString of the items without arguments, which is right if there are none. It
// cannot be interrupted within a list, so it is not used for long lists.
const MAX_UNWATCHED = 10_000;
const arrayText = uncurry(Array.prototype.toLocaleString);
const typedArrayText = uncurry(getPrototypeOf(Uint8Array.prototype).toLocaleString);

function listText(list, length, locales, given) {
  let text = "";
  for (let i = 0; i < length; i++) {
    const item = list[i];
    text += (i === 0 ? "" : ",") + (item === undefined || item === null ? "" : NativeString(item.toLocaleString(locales, given)));
  }
  return text;
}

function locale(prototype, methods) {
  for (const name of objectKeys(methods)) defineProperty(prototype, name, hidden(methods[name]));
}

// The glue has these two functions for the common case, and calls these for other cases.
const commonNumberText = uncurry(natives.numberText);

const otherNumberText = {
  toLocaleString(locales = undefined, given = undefined) {
    const n = typeof this === "number" ? this : numberValueOf(this);
    if (given === undefined && (locales === "en-US" || locales === "en")) return commonNumberText(n);
    checkLocale("toLocaleString", locales);
    const digits = decimals("toLocaleString", given);
    return numberText(n, digits[0], digits[1]);
  },
};
const otherBigIntText = {
  toLocaleString(locales = undefined, given = undefined) {
    const n = typeof this === "bigint" ? this : bigIntValueOf(this);
    checkLocale("toLocaleString", locales);
    return bigIntText(n, decimals("toLocaleString", given)[0]);
  },
};
setFunction(2, otherNumberText.toLocaleString);
setFunction(3, otherBigIntText.toLocaleString);
locale(Number.prototype, { toLocaleString: named("toLocaleString", natives.numberText) });
locale(BigInt.prototype, { toLocaleString: named("toLocaleString", natives.bigIntText) });
locale(Date.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    return localDateText("toLocaleString", this, locales, given, DAY | CLOCK);
  },
  toLocaleDateString(locales = undefined, given = undefined) {
    return localDateText("toLocaleDateString", this, locales, given, DAY);
  },
  toLocaleTimeString(locales = undefined, given = undefined) {
    return localDateText("toLocaleTimeString", this, locales, given, CLOCK);
  },
});
locale(Array.prototype, {
  toLocaleString(locales = undefined, given = undefined) {
    const plain = locales === undefined && given === undefined && isArray(this) && this.length <= MAX_UNWATCHED;
    return plain ? arrayText(this) : listText(this, this.length, locales, given);
  },
});
locale(getPrototypeOf(Uint8Array.prototype), {
  toLocaleString(locales = undefined, given = undefined) {
    validTypedArray(this);
    const length = typedArrayLength(this);
    const plain = locales === undefined && given === undefined && length <= MAX_UNWATCHED;
    return plain ? typedArrayText(this) : listText(this, length, locales, given);
  },
});

// The order of texts in en-US: first by letters, then by accents, then by case. Symbols come before digits, and digits
// before letters. Characters that are not in the tables below are ordered by their codes.
const SYMBOLS = "\t\n\v\f\r _-–—,;:!¡?¿.·'‘’‹›\"“”«»()[]{}§¶@*/\\&#%•\x60´^¯¨¸°©®←→↑↓+±÷×<=>¬|¦~−∞✓";
const CURRENCIES = "¤¢$£¥€";
const OTHER_SYMBOLS = 0x1000; // after those above
const LETTERS = 0x20000; // after symbols and currencies
const asciiRanks = objectCreate(null); // by character; a character of rank 0 is ignored
for (let c = 0; c < 128; c++) asciiRanks[NativeString.fromCharCode(c)] = 0;

function symbolRank(text, c) {
  const known = stringIndexOf(SYMBOLS, text);
  if (known >= 0) return known + 1;
  const currency = stringIndexOf(CURRENCIES, text);
  if (currency >= 0) return LETTERS - 10 + currency;
  const other = (c > 0xa0 && c < 0xc0 && c !== 0xaa && c !== 0xba) || (c >= 0x2010 && c < 0x2c00) || (c >= 0xd83c && c <= 0xd83e);
  return other ? OTHER_SYMBOLS + c : 0;
}

for (let c = 9; c < 127; c++) asciiRanks[NativeString.fromCharCode(c)] = symbolRank(NativeString.fromCharCode(c), c);
for (let i = 0; i < 10; i++) asciiRanks[i] = LETTERS + i;
for (let i = 0; i < 26; i++) {
  asciiRanks[NativeString.fromCharCode(65 + i)] = asciiRanks[NativeString.fromCharCode(97 + i)] = LETTERS + 16 + i;
}
asciiRanks["ı"] = LETTERS + 24.5; // between i and j
// Letters that are ordered as other letters, with a stroke or as a ligature.
const ALIKE = { __proto__: null, "…": "...", "æ": "ae", "œ": "oe", "ø": "o", "ß": "ss", "đ": "d", "ð": "d", "ħ": "h", "ł": "l", "Æ": "AE", "Œ": "OE", "Ø": "O", "Đ": "D", "Ð": "D", "Ħ": "H", "Ł": "L" };
const OF_LIGATURE = 300; // after all accents
const MARKS = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0328\u0327\u0304";
const normalize = uncurry(String.prototype.normalize);

// Return the letters, accents and cases of a text, each as numbers.
function collated(text) {
  const normal = normalize(text, "NFD");
  const found = { __proto__: null, length: 0, letters: objectCreate(null), accents: objectCreate(null), cases: objectCreate(null) };
  for (let i = 0; i < normal.length; i++) {
    const c = stringCharCodeAt(normal, i);
    if (c >= 0x300 && c < 0x370) {
      const known = stringIndexOf(MARKS, normal[i]);
      if (found.length > 0) found.accents[found.length - 1] = (found.accents[found.length - 1] * 128 + 2 + (known < 0 ? c - 0x300 + 20 : known)) % 1e12;
      continue;
    }
    const as = c < 128 ? undefined : ALIKE[normal[i]];
    const letters = as ?? normal[i];
    for (let j = 0; j < letters.length; j++) {
      const d = stringCharCodeAt(letters, j);
      const rank = asciiRanks[letters[j]] ?? (symbolRank(letters[j], d) || LETTERS + 64 + d);
      if (rank === 0) continue;
      found.letters[found.length] = rank;
      found.accents[found.length] = as === undefined ? 1 : OF_LIGATURE;
      found.cases[found.length] = d >= 65 && d <= 90 ? 1 : 0;
      found.length += 1;
    }
  }
  return found;
}

function compareLists(a, b, length) {
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

function compareFully(a, b) {
  const one = collated(a);
  const other = collated(b);
  const shorter = one.length < other.length ? one.length : other.length;
  const byLetters = compareLists(one.letters, other.letters, shorter);
  if (byLetters !== 0) return byLetters;
  if (one.length !== other.length) return one.length < other.length ? -1 : 1;
  const byAccents = compareLists(one.accents, other.accents, shorter);
  return byAccents !== 0 ? byAccents : compareLists(one.cases, other.cases, shorter);
}

// The table for comparisons by the glue: two elements for each character. `glue.wat` has their form.
const UNKNOWN = 0xffffffff;

function elements(character) {
  if (/\p{M}/u.test(character)) return [UNKNOWN, UNKNOWN]; // its rank depends on the text around it
  const found = collated(character);
  return found.length > 2 ? [UNKNOWN, UNKNOWN] : [elementOf(found, 0), elementOf(found, 1)];
}

function elementOf(found, i) {
  if (i >= found.length) return 0;
  const accent = ACCENTS.indexOf(found.accents[i]);
  return found.letters[i] * 16384 + accent * 2 + found.cases[i];
}

const KNOWN = [[0, 0x530], [0x2000, 0x20d0], [0x3000, 0x3100]].flatMap(([start, end]) =>
  Array.from({ length: end - start }, (_, i) => NativeString.fromCharCode(start + i)));
const ACCENTS = [...new Set(KNOWN.flatMap((character) => Object.values(collated(character).accents)))].sort((a, b) => a - b);
natives.setCollation(new NativeUint8Array(new NativeUint32Array(KNOWN.flatMap(elements)).buffer));
const compareKnown = natives.compare;

function compareTexts(a, b) {
  return a === b ? 0 : (compareKnown(a, b) ?? compareFully(a, b));
}

const ORDER = "other orders are there for programs whose text has the call itself, such as a.localeCompare(b, locale, options)";

function thisText(method, v) {
  if (v === undefined || v === null) throw new NativeTypeError(method + "() is called on a string, not " + v);
  return NativeString(v);
}

const toUpperCase = uncurry(String.prototype.toUpperCase);
const toLowerCase = uncurry(String.prototype.toLowerCase);

locale(String.prototype, {
  localeCompare(that, locales = undefined, given = undefined) {
    if (typeof this === "string" && typeof that === "string" && locales === undefined && given === undefined) return compareTexts(this, that);
    const text = thisText("localeCompare", this);
    const other = NativeString(that);
    checkLocale("localeCompare", locales, ORDER);
    someOptions("localeCompare", given, NO_OPTIONS, ORDER);
    return compareTexts(text, other);
  },
  toLocaleUpperCase(locales = undefined) {
    if (typeof this === "string" && locales === undefined) return toUpperCase(this);
    const text = thisText("toLocaleUpperCase", this);
    checkLocale("toLocaleUpperCase", locales, "use toUpperCase()");
    return toUpperCase(text);
  },
  toLocaleLowerCase(locales = undefined) {
    if (typeof this === "string" && locales === undefined) return toLowerCase(this);
    const text = thisText("toLocaleLowerCase", this);
    checkLocale("toLocaleLowerCase", locales, "use toLowerCase()");
    return toLowerCase(text);
  },
});

// Add the classes of the bundle with `Intl`, for programs that use them: `bundle` is the value of its script. Called once,
// before any guest code. The bundle uses built-ins that a guest can replace, so nothing here depends on it.
function addIntl(bundle) {
  bundle({ __proto__: null, collated });
}
