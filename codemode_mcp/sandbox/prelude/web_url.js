// URL and URLSearchParams, after the WHATWG URL Standard (https://url.spec.whatwg.org/). Load after web_encoding.js.
//
// Internationalised domains (Unicode UTS #46) are mapped with the engine's own NFKC, case mapping and character
// properties instead of the standard's 9,000-line table. Not covered:
// - the bidi rule (CheckBidi), because the engine knows no bidi classes;
// - the joiner rule (CheckJoiners) beyond the common Indic viramas, and Arabic letters around ZERO WIDTH NON-JOINER;
// - code points newer than the engine's Unicode version, which are refused as unassigned.
// Also absent: URL.createObjectURL and revokeObjectURL (there are no Blobs), and legacy query encodings.
(() => {
  "use strict";

  // Guest code may overwrite any built-in later; what is used after load time is taken now. For the same reason arrays
  // are walked by index below: `for...of`, destructuring and `push` look up what a guest can replace.
  // So does a template literal, which is a call of String.prototype.concat in this engine.
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys, setPrototypeOf } = Reflect;
  const { floor } = Math;
  const { fromCodePoint } = String;
  const { iterator: iteratorSymbol, toStringTag } = Symbol;
  const NativeRegExp = RegExp;
  const NativeString = String;
  const NativeUint8Array = Uint8Array;
  const charCodeAt = uncurry(String.prototype.charCodeAt);
  const codePointAt = uncurry(String.prototype.codePointAt);
  const indexOf = uncurry(String.prototype.indexOf);
  const lastIndexOf = uncurry(String.prototype.lastIndexOf);
  const normalize = uncurry(String.prototype.normalize);
  const slice = uncurry(String.prototype.slice);
  const split = uncurry(String.prototype.split);
  const startsWith = uncurry(String.prototype.startsWith);
  const toLowerCase = uncurry(String.prototype.toLowerCase);
  const toUpperCase = uncurry(String.prototype.toUpperCase);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const numberToString = uncurry(Number.prototype.toString);
  const regExpExec = uncurry(RegExp.prototype.exec);
  const arraySlice = uncurry(Array.prototype.slice);
  const arraySort = uncurry(Array.prototype.sort);
  const utf8Decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const decodeUtf8 = uncurry(TextDecoder.prototype.decode);

  const join = (parts, separator) => {
    let text = "";
    for (let index = 0; index < parts.length; index++) text += index === 0 ? parts[index] : separator + parts[index];
    return text;
  };
  const append = (list, item) => {
    list[list.length] = item;
  };
  function toUSVString(value) {
    if (typeof value === "symbol") throw new TypeError("Cannot convert a symbol to a string");
    return toWellFormed(NativeString(value));
  }

  // --- Code points ---

  const EOF = -1;
  const TAB = 0x09;
  const LF = 0x0a;
  const CR = 0x0d;
  const SPACE = 0x20;
  const HASH = 0x23;
  const PERCENT = 0x25;
  const PLUS = 0x2b;
  const HYPHEN = 0x2d;
  const DOT = 0x2e;
  const SLASH = 0x2f;
  const COLON = 0x3a;
  const QUESTION = 0x3f;
  const OPEN_BRACKET = 0x5b;
  const BACKSLASH = 0x5c;
  const CLOSE_BRACKET = 0x5d;

  const isDigit = (c) => c >= 0x30 && c <= 0x39;
  const isAlpha = (c) => (c | 0x20) >= 0x61 && (c | 0x20) <= 0x7a;
  const isHex = (c) => isDigit(c) || ((c | 0x20) >= 0x61 && (c | 0x20) <= 0x66);
  const hexValue = (c) => (isDigit(c) ? c - 0x30 : (c | 0x20) - 0x61 + 10);
  const isSlash = (c) => c === SLASH || c === BACKSLASH;

  // 1.3 "Percent-encoded bytes": one bit per set, for the ASCII range. Non-ASCII is in every percent-encode set.
  const C0_SET = 1;
  const FRAGMENT_SET = 2;
  const QUERY_SET = 4;
  const SPECIAL_QUERY_SET = 8;
  const PATH_SET = 16;
  const USERINFO_SET = 32;
  const FORM_SET = 64;
  const FORBIDDEN_HOST = 128;
  const MEMBERS = new Uint8Array(128);
  {
    const PERCENT_SETS = C0_SET | FRAGMENT_SET | QUERY_SET | SPECIAL_QUERY_SET | PATH_SET | USERINFO_SET | FORM_SET;
    for (let c = 0; c < 0x20; c++) MEMBERS[c] = PERCENT_SETS;
    MEMBERS[0x7f] = PERCENT_SETS;
    const add = (characters, sets) => {
      for (const character of characters) MEMBERS[character.charCodeAt(0)] |= sets;
    };
    const PATH_AND_UP = PATH_SET | USERINFO_SET;
    add(' "<>', FRAGMENT_SET | QUERY_SET | SPECIAL_QUERY_SET | PATH_AND_UP);
    add("`", FRAGMENT_SET);
    add("#", QUERY_SET | SPECIAL_QUERY_SET | PATH_AND_UP);
    add("'", SPECIAL_QUERY_SET);
    add("?^`{}", PATH_AND_UP);
    add("/:;=@[\\]|", USERINFO_SET);
    add(" !\"#$%&'()+,/:;<=>?@[\\]^`{|}~", FORM_SET);
    add("\0\t\n\r #/:<>?@[\\]^|", FORBIDDEN_HOST);
  }

  const HEX = "0123456789ABCDEF";
  const percentByte = (byte) => "%" + HEX[byte >> 4] + HEX[byte & 15];

  function percentEncodeCodePoint(c) {
    if (c < 0x80) return percentByte(c);
    if (c < 0x800) return percentByte(0xc0 | (c >> 6)) + percentByte(0x80 | (c & 0x3f));
    const tail = percentByte(0x80 | ((c >> 6) & 0x3f)) + percentByte(0x80 | (c & 0x3f));
    if (c < 0x10000) return percentByte(0xe0 | (c >> 12)) + tail;
    return percentByte(0xf0 | (c >> 18)) + percentByte(0x80 | ((c >> 12) & 0x3f)) + tail;
  }

  /** 1.3 "UTF-8 percent-encode" a whole string. */
  function percentEncode(text, set, spaceAsPlus = false) {
    let result = "";
    let copied = 0;
    for (let index = 0; index < text.length; index++) {
      const unit = charCodeAt(text, index);
      if (unit < 0x80 && (MEMBERS[unit] & set) === 0) continue;
      const codePoint = codePointAt(text, index);
      result += slice(text, copied, index) + (spaceAsPlus && unit === SPACE ? "+" : percentEncodeCodePoint(codePoint));
      if (codePoint > 0xffff) index++;
      copied = index + 1;
    }
    return copied === 0 ? text : result + slice(text, copied);
  }

  /**
   * 1.3 "Percent-decode", then "UTF-8 decode without BOM". Decoding each run of escapes by itself gives the same as
   * decoding the whole: an unescaped character never continues a byte sequence that an escape began.
   */
  function percentDecode(text) {
    let result = "";
    let copied = 0;
    let index = indexOf(text, "%");
    while (index !== -1) {
      const start = index;
      while (isEscape(text, index)) index += 3;
      if (index > start) {
        const bytes = new NativeUint8Array((index - start) / 3);
        for (let i = 0; i < bytes.length; i++) {
          const at = start + 3 * i;
          bytes[i] = (hexValue(charCodeAt(text, at + 1)) << 4) | hexValue(charCodeAt(text, at + 2));
        }
        result += slice(text, copied, start) + decodeUtf8(utf8Decoder, bytes);
        copied = index;
      } else {
        index++;
      }
      index = indexOf(text, "%", index);
    }
    return copied === 0 ? text : result + slice(text, copied);
  }

  const isEscape = (text, index) =>
    index + 2 < text.length &&
    charCodeAt(text, index) === PERCENT &&
    isHex(charCodeAt(text, index + 1)) &&
    isHex(charCodeAt(text, index + 2));

  function isAscii(text) {
    for (let index = 0; index < text.length; index++) if (charCodeAt(text, index) > 0x7f) return false;
    return true;
  }

  // --- 3.3 Internationalised domains: UTS #46 with the parameters of "domain to ASCII", and Punycode (RFC 3492) ---

  let idna; // the regular expressions, compiled when the first non-ASCII domain comes: their tables take memory

  function idnaClasses() {
    if (idna === undefined) {
      const compile = (pattern) => new NativeRegExp(pattern, "u");
      const virama =
        "\\u094d\\u09cd\\u0a4d\\u0acd\\u0b4d\\u0bcd\\u0c4d\\u0ccd" +
        "\\u0d3b\\u0d3c\\u0d4d\\u0dca\\u0e3a\\u0f84\\u1039\\u103a\\u17d2";
      idna = {
        // Default ignorables are dropped, but for the joiners, the bidi controls, unassigned ones and the tags.
        ignored: compile(
          "^(?![\\u061c\\u200c-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\u{e0000}-\\u{e007f}\\p{Cn}])\\p{DI}",
        ),
        disallowed: compile(
          "^(?![\\u200c\\u200d])" + // the joiners have a rule of their own
            "[\\p{C}\\p{DI}\\p{Zl}\\p{Zp}\\u1680\\u2ff0-\\u2fff\\u31ef\\ufffc\\ufffd]",
        ),
        cherokee: compile("^\\p{sc=Cher}"),
        folds: compile("^\\p{CWCF}"),
        mark: compile("^\\p{M}"),
        badJoiner: compile(
          "(?<![" + virama + "])(?:\\u200d|(?<!\\p{sc=Arab}\\p{M}*)\\u200c|\\u200c(?!\\p{M}*\\p{sc=Arab}))",
        ),
      };
    }
    return idna;
  }

  const matches = (pattern, text) => regExpExec(pattern, text) !== null;

  /** What the UTS #46 table maps a code point to; null for a disallowed one. */
  function mapCharacter(character) {
    const { ignored, disallowed } = idnaClasses();
    switch (character) {
      case "\u3002": // the full stops of Chinese and Japanese
      case "\uff0e":
      case "\uff61":
        return ".";
      case "\u1e9e":
        return "ß";
      case "ß": // case folding would change these two; they are valid, as Transitional_Processing is false
      case "\u03c2":
        return character;
    }
    if (matches(ignored, character)) return "";
    if (matches(disallowed, character)) return null;
    const folded = fold(normalize(character, "NFKC"));
    return indexOf(folded, ".") === -1 ? folded : null;
  }

  function fold(text) {
    const { cherokee, folds } = idnaClasses();
    let folded = "";
    for (let index = 0; index < text.length; index++) {
      const character = fromCodePoint(codePointAt(text, index));
      if (character.length === 2) index++;
      // Upper then lower case makes full case folding, as a single sigma knows no word end. Only Cherokee folds upward.
      if (matches(cherokee, character)) folded += toUpperCase(character);
      else folded += matches(folds, character) ? toLowerCase(toUpperCase(character)) : character;
    }
    return folded;
  }

  /** UTS #46 section 4, steps 1 and 2, "Map" and "Normalize"; null if a code point is disallowed. */
  function mapDomain(domain) {
    let mapped = "";
    for (let index = 0; index < domain.length; index++) {
      const character = fromCodePoint(codePointAt(domain, index));
      if (character.length === 2) index++;
      const part = charCodeAt(character, 0) < 0x80 ? toLowerCase(character) : mapCharacter(character);
      if (part === null) return null;
      mapped += part;
    }
    return normalize(mapped, "NFKC");
  }

  /** UTS #46 section 4.1 "Validity Criteria" for a non-ASCII label. */
  function isValidLabel(label) {
    const { mark, badJoiner } = idnaClasses();
    return mapDomain(label) === label && !matches(mark, label) && !matches(badJoiner, label);
  }

  function domainToASCII(domain) {
    let mapped = toLowerCase(domain);
    const ascii = isAscii(domain);
    if (ascii && !startsWith(mapped, "xn--") && indexOf(mapped, ".xn--") === -1) return mapped;
    if (!ascii) mapped = mapDomain(domain);
    if (mapped === null) return null;
    const labels = split(mapped, ".");
    for (let index = 0; index < labels.length; index++) {
      let label = labels[index];
      if (startsWith(label, "xn--")) {
        label = punycodeDecode(slice(label, 4));
        if (label === null || isAscii(label) || startsWith(label, "xn--")) return null;
      }
      if (isAscii(label)) continue;
      if (!isValidLabel(label)) return null;
      labels[index] = "xn--" + punycodeEncode(label);
    }
    return join(labels, ".");
  }

  const PUNYCODE_BASE = 36;
  const PUNYCODE_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789";
  const MAX_CODE_POINT = 0x10ffff;

  const threshold = (k, bias) => (k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias);

  function adaptBias(delta, count, first) {
    let scaled = floor(delta / (first ? 700 : 2));
    scaled += floor(scaled / count);
    let k = 0;
    for (; scaled > 455; k += PUNYCODE_BASE) scaled = floor(scaled / 35);
    return k + floor((36 * scaled) / (scaled + 38));
  }

  /** RFC 3492 section 6.3. */
  function punycodeEncode(label) {
    const input = [];
    let output = "";
    for (let index = 0; index < label.length; index++) {
      const codePoint = codePointAt(label, index);
      append(input, codePoint);
      if (codePoint > 0xffff) index++;
      if (codePoint < 0x80) output += label[index];
    }
    const basic = output.length;
    let handled = basic;
    if (basic > 0) output += "-";
    let n = 0x80;
    let delta = 0;
    let bias = 72;
    while (handled < input.length) {
      let smallest = MAX_CODE_POINT;
      for (let i = 0; i < input.length; i++) if (input[i] >= n && input[i] < smallest) smallest = input[i];
      delta += (smallest - n) * (handled + 1);
      n = smallest;
      for (let i = 0; i < input.length; i++) {
        if (input[i] < n) delta++;
        if (input[i] !== n) continue;
        let q = delta;
        for (let k = PUNYCODE_BASE; ; k += PUNYCODE_BASE) {
          const t = threshold(k, bias);
          if (q < t) break;
          output += PUNYCODE_DIGITS[t + ((q - t) % (PUNYCODE_BASE - t))];
          q = floor((q - t) / (PUNYCODE_BASE - t));
        }
        output += PUNYCODE_DIGITS[q];
        bias = adaptBias(delta, handled + 1, handled === basic);
        delta = 0;
        handled++;
      }
      delta++;
      n++;
    }
    return output;
  }

  /** RFC 3492 section 6.2, of a lower-case ASCII string. Return null for a malformed one. */
  function punycodeDecode(text) {
    const output = [];
    const delimiter = lastIndexOf(text, "-");
    for (let index = 0; index < delimiter; index++) append(output, charCodeAt(text, index));
    let n = 0x80;
    let i = 0;
    let bias = 72;
    for (let index = delimiter > 0 ? delimiter + 1 : 0; index < text.length; ) {
      const before = i;
      let weight = 1;
      for (let k = PUNYCODE_BASE; ; k += PUNYCODE_BASE) {
        if (index >= text.length) return null;
        const digit = indexOf(PUNYCODE_DIGITS, text[index++]);
        if (digit === -1) return null;
        i += digit * weight;
        if (i > 0x7fffffff) return null;
        const t = threshold(k, bias);
        if (digit < t) break;
        weight *= PUNYCODE_BASE - t;
      }
      const length = output.length + 1;
      bias = adaptBias(i - before, length, before === 0);
      n += floor(i / length);
      if (n > MAX_CODE_POINT || (n >= 0xd800 && n <= 0xdfff)) return null;
      i %= length;
      for (let at = output.length; at > i; at--) output[at] = output[at - 1];
      output[i++] = n;
    }
    let label = "";
    for (let index = 0; index < output.length; index++) label += fromCodePoint(output[index]);
    return label;
  }

  // --- 3.5 Host parsing and 3.6 host serializing. A host is kept in its serialized form; null means failure. ---

  function containsForbidden(text, sets) {
    for (let index = 0; index < text.length; index++) {
      const unit = charCodeAt(text, index);
      if (unit < 0x80 && (MEMBERS[unit] & sets) !== 0) return true;
    }
    return false;
  }

  function parseHost(input, isOpaque) {
    if (charCodeAt(input, 0) === OPEN_BRACKET) {
      if (charCodeAt(input, input.length - 1) !== CLOSE_BRACKET) return null;
      const pieces = parseIPv6(slice(input, 1, -1));
      return pieces === null ? null : "[" + serializeIPv6(pieces) + "]";
    }
    if (isOpaque) return containsForbidden(input, FORBIDDEN_HOST) ? null : percentEncode(input, C0_SET);
    const domain = domainToASCII(percentDecode(input));
    if (domain === null || domain === "") return null;
    // Forbidden domain code points: the forbidden host ones, the C0 controls, U+007F and "%".
    if (containsForbidden(domain, FORBIDDEN_HOST | C0_SET) || indexOf(domain, "%") !== -1) return null;
    return endsInNumber(domain) ? parseIPv4(domain) : domain;
  }

  function endsInNumber(domain) {
    const end = domain[domain.length - 1] === "." ? domain.length - 1 : domain.length;
    const last = slice(domain, end === 0 ? 0 : lastIndexOf(domain, ".", end - 1) + 1, end);
    if (last === "") return false;
    let digits = true;
    for (let index = 0; index < last.length && digits; index++) digits = isDigit(charCodeAt(last, index));
    return digits || parseIPv4Number(last) !== null;
  }

  /** 3.5 "IPv4 number parser": decimal, 0 octal or 0x hexadecimal. */
  function parseIPv4Number(text) {
    if (text === "") return null;
    let radix = 10;
    let index = 0;
    if (text.length > 1 && text[0] === "0") {
      radix = (charCodeAt(text, 1) | 0x20) === 0x78 ? 16 : 8;
      index = radix === 16 ? 2 : 1;
    }
    let value = 0;
    for (; index < text.length; index++) {
      const c = charCodeAt(text, index);
      if (!isHex(c) || hexValue(c) >= radix) return null;
      value = value * radix + hexValue(c);
    }
    return value;
  }

  function parseIPv4(domain) {
    const parts = split(domain, ".");
    if (parts[parts.length - 1] === "" && parts.length > 1) parts.length--;
    if (parts.length > 4) return null;
    let address = 0;
    for (let index = 0; index < parts.length; index++) {
      const number = parseIPv4Number(parts[index]);
      const isLast = index === parts.length - 1;
      // The last number fills all the bytes that the others leave.
      const limit = isLast ? 256 ** (5 - parts.length) : 256;
      if (number === null || number >= limit) return null;
      address += isLast ? number : number * 256 ** (3 - index);
    }
    const byte = (power) => floor(address / 256 ** power) % 256;
    return byte(3) + "." + byte(2) + "." + byte(1) + "." + byte(0);
  }

  function parseIPv6(input) {
    const pieces = [0, 0, 0, 0, 0, 0, 0, 0];
    let piece = 0;
    let compress = -1;
    let at = 0;
    const current = () => (at < input.length ? charCodeAt(input, at) : EOF);
    if (current() === COLON) {
      if (charCodeAt(input, 1) !== COLON) return null;
      at = 2;
      compress = ++piece;
    }
    while (at < input.length) {
      if (piece === 8) return null;
      if (current() === COLON) {
        if (compress !== -1) return null;
        at++;
        compress = ++piece;
        continue;
      }
      let value = 0;
      let length = 0;
      for (; length < 4 && isHex(current()); length++) value = value * 16 + hexValue(charCodeAt(input, at++));
      if (current() === DOT) {
        if (length === 0 || piece > 6) return null;
        at -= length;
        let seen = 0;
        for (; at < input.length; seen++) {
          if (seen > 0) {
            if (current() !== DOT || seen === 4) return null;
            at++;
          }
          if (!isDigit(current())) return null;
          let byte = -1;
          for (; isDigit(current()); at++) {
            if (byte === 0) return null; // no leading zeros
            byte = (byte === -1 ? 0 : byte * 10) + current() - 0x30;
            if (byte > 255) return null;
          }
          pieces[piece] = pieces[piece] * 256 + byte;
          if (seen === 1 || seen === 3) piece++;
        }
        if (seen !== 4) return null;
        break;
      }
      if (current() === COLON) {
        at++;
        if (at === input.length) return null;
      } else if (at < input.length) {
        return null;
      }
      pieces[piece++] = value;
    }
    if (compress === -1) return piece === 8 ? pieces : null;
    for (let swaps = piece - compress, last = 7; last !== 0 && swaps > 0; last--, swaps--) {
      const other = compress + swaps - 1;
      const moved = pieces[other];
      pieces[other] = pieces[last];
      pieces[last] = moved;
    }
    return pieces;
  }

  function serializeIPv6(pieces) {
    // The first longest run of two or more zero pieces is written as "::".
    let compress = -1;
    let longest = 1;
    for (let start = 0; start < 8; start++) {
      let end = start;
      while (end < 8 && pieces[end] === 0) end++;
      if (end - start > longest) {
        longest = end - start;
        compress = start;
      }
    }
    let text = "";
    for (let index = 0; index < 8; index++) {
      if (index === compress) {
        text += index === 0 ? "::" : ":";
        index += longest - 1;
        continue;
      }
      text += numberToString(pieces[index], 16);
      if (index !== 7) text += ":";
    }
    return text;
  }

  // --- 4.1 URL representation ---

  const DEFAULT_PORTS = { __proto__: null, ftp: 21, file: null, http: 80, https: 443, ws: 80, wss: 443 };

  const isSpecialScheme = (scheme) => DEFAULT_PORTS[scheme] !== undefined;

  class URLRecord {
    scheme = "";
    username = "";
    password = "";
    host = null;
    port = null;
    path = []; // segments, or a string when the path is opaque
    query = null;
    fragment = null;

    get isSpecial() {
      return isSpecialScheme(this.scheme);
    }

    get hasOpaquePath() {
      return typeof this.path === "string";
    }

    get hasCredentials() {
      return this.username !== "" || this.password !== "";
    }

    get cannotHaveCredentialsOrPort() {
      return this.host === null || this.host === "" || this.scheme === "file";
    }

    copyAuthority(base) {
      this.username = base.username;
      this.password = base.password;
      this.host = base.host;
      this.port = base.port;
    }

    setPort(number) {
      this.port = number === DEFAULT_PORTS[this.scheme] ? null : number;
    }

    shortenPath() {
      const { path } = this;
      if (this.scheme === "file" && path.length === 1 && isNormalizedDriveLetter(path[0])) return;
      if (path.length > 0) path.length--;
    }
  }

  const isDriveLetter = (text) =>
    text.length === 2 && isAlpha(charCodeAt(text, 0)) && (text[1] === ":" || text[1] === "|");

  const isNormalizedDriveLetter = (text) => isDriveLetter(text) && text[1] === ":";

  /** 4.1 "starts with a Windows drive letter". */
  function startsWithDriveLetter(text, at) {
    if (!isDriveLetter(slice(text, at, at + 2))) return false;
    if (at + 2 === text.length) return true;
    const next = charCodeAt(text, at + 2);
    return isSlash(next) || next === QUESTION || next === HASH;
  }

  const isSingleDot = (segment) => segment === "." || (segment.length === 3 && toLowerCase(segment) === "%2e");

  function isDoubleDot(segment) {
    if (segment === "..") return true;
    if (segment.length !== 4 && segment.length !== 6) return false;
    const lower = toLowerCase(segment);
    return lower === ".%2e" || lower === "%2e." || lower === "%2e%2e";
  }

  // --- 4.4 URL parsing ---

  const SCHEME_START = 1;
  const SCHEME = 2;
  const NO_SCHEME = 3;
  const SPECIAL_RELATIVE_OR_AUTHORITY = 4;
  const PATH_OR_AUTHORITY = 5;
  const RELATIVE = 6;
  const RELATIVE_SLASH = 7;
  const SPECIAL_AUTHORITY_SLASHES = 8;
  const SPECIAL_AUTHORITY_IGNORE_SLASHES = 9;
  const AUTHORITY = 10;
  const HOST = 11;
  const HOSTNAME = 12;
  const PORT = 13;
  const FILE = 14;
  const FILE_SLASH = 15;
  const FILE_HOST = 16;
  const PATH_START = 17;
  const PATH = 18;
  const OPAQUE_PATH = 19;
  const QUERY = 20;
  const FRAGMENT = 21;

  function trimControls(text) {
    let start = 0;
    let end = text.length;
    while (start < end && charCodeAt(text, start) <= SPACE) start++;
    while (end > start && charCodeAt(text, end - 1) <= SPACE) end--;
    return slice(text, start, end);
  }

  function withoutTabsAndNewlines(text) {
    let result = "";
    let copied = 0;
    for (let index = 0; index < text.length; index++) {
      const c = charCodeAt(text, index);
      if (c !== TAB && c !== LF && c !== CR) continue;
      result += slice(text, copied, index);
      copied = index + 1;
    }
    return copied === 0 ? text : result + slice(text, copied);
  }

  /**
   * The basic URL parser. Return a URL record or, for a failure, null. With `override`, the setters' entry point, it
   * changes `url` in place and its return value means nothing.
   *
   * Two liberties against the standard's letter, none against its result. It reads code units, as everything it
   * compares with is ASCII. And the states that percent-encode take all characters up to the next delimiter in one step.
   */
  function parseURL(text, base = null, url = null, override = 0) {
    if (override === 0) {
      url = new URLRecord();
      text = trimControls(text);
    }
    const input = withoutTabsAndNewlines(text);
    let state = override === 0 ? SCHEME_START : override;
    let buffer = "";
    let inBrackets = false;

    const endsAuthority = (c) =>
      c === EOF || c === SLASH || c === QUESTION || c === HASH || (c === BACKSLASH && url.isSpecial);

    for (let pointer = 0; ; pointer++) {
      const c = pointer < input.length ? charCodeAt(input, pointer) : EOF;
      switch (state) {
        case SCHEME_START:
          if (isAlpha(c)) {
            buffer += toLowerCase(input[pointer]);
            state = SCHEME;
          } else if (override === 0) {
            state = NO_SCHEME;
            pointer--;
          } else {
            return null;
          }
          break;

        case SCHEME:
          if (isAlpha(c) || isDigit(c) || c === PLUS || c === HYPHEN || c === DOT) {
            buffer += toLowerCase(input[pointer]);
          } else if (c === COLON) {
            if (override !== 0) {
              if (url.isSpecial !== isSpecialScheme(buffer)) return null;
              if ((url.hasCredentials || url.port !== null) && buffer === "file") return null;
              if (url.scheme === "file" && url.host === "") return null;
              url.scheme = buffer;
              url.setPort(url.port);
              return url;
            }
            url.scheme = buffer;
            buffer = "";
            if (url.scheme === "file") {
              state = FILE;
            } else if (url.isSpecial) {
              const sameScheme = base !== null && base.scheme === url.scheme;
              state = sameScheme ? SPECIAL_RELATIVE_OR_AUTHORITY : SPECIAL_AUTHORITY_SLASHES;
            } else if (input[pointer + 1] === "/") {
              state = PATH_OR_AUTHORITY;
              pointer++;
            } else {
              url.path = "";
              state = OPAQUE_PATH;
            }
          } else if (override === 0) {
            buffer = "";
            state = NO_SCHEME;
            pointer = -1;
          } else {
            return null;
          }
          break;

        case NO_SCHEME:
          if (base === null || (base.hasOpaquePath && c !== HASH)) return null;
          if (base.hasOpaquePath) {
            url.scheme = base.scheme;
            url.path = base.path;
            url.query = base.query;
            url.fragment = "";
            state = FRAGMENT;
          } else {
            state = base.scheme === "file" ? FILE : RELATIVE;
            pointer--;
          }
          break;

        case SPECIAL_RELATIVE_OR_AUTHORITY:
          if (c === SLASH && input[pointer + 1] === "/") {
            state = SPECIAL_AUTHORITY_IGNORE_SLASHES;
            pointer++;
          } else {
            state = RELATIVE;
            pointer--;
          }
          break;

        case PATH_OR_AUTHORITY:
          if (c === SLASH) {
            state = AUTHORITY;
          } else {
            state = PATH;
            pointer--;
          }
          break;

        case RELATIVE:
          url.scheme = base.scheme;
          if (c === SLASH || (c === BACKSLASH && url.isSpecial)) {
            state = RELATIVE_SLASH;
            break;
          }
          url.copyAuthority(base);
          url.path = arraySlice(base.path);
          url.query = base.query;
          if (c === QUESTION) {
            url.query = "";
            state = QUERY;
          } else if (c === HASH) {
            url.fragment = "";
            state = FRAGMENT;
          } else if (c !== EOF) {
            url.query = null;
            url.shortenPath();
            state = PATH;
            pointer--;
          }
          break;

        case RELATIVE_SLASH:
          if (url.isSpecial && isSlash(c)) {
            state = SPECIAL_AUTHORITY_IGNORE_SLASHES;
          } else if (c === SLASH) {
            state = AUTHORITY;
          } else {
            url.copyAuthority(base);
            state = PATH;
            pointer--;
          }
          break;

        case SPECIAL_AUTHORITY_SLASHES:
          if (c === SLASH && input[pointer + 1] === "/") pointer++;
          else pointer--;
          state = SPECIAL_AUTHORITY_IGNORE_SLASHES;
          break;

        case SPECIAL_AUTHORITY_IGNORE_SLASHES:
          if (!isSlash(c)) {
            state = AUTHORITY;
            pointer--;
          }
          break;

        case AUTHORITY: {
          let end = pointer;
          while (!endsAuthority(end < input.length ? charCodeAt(input, end) : EOF)) end++;
          const authority = slice(input, pointer, end);
          const at = lastIndexOf(authority, "@");
          if (at !== -1) {
            if (at === authority.length - 1) return null; // credentials without a host
            const credentials = slice(authority, 0, at);
            const colon = indexOf(credentials, ":");
            url.username = percentEncode(colon === -1 ? credentials : slice(credentials, 0, colon), USERINFO_SET);
            if (colon !== -1) url.password = percentEncode(slice(credentials, colon + 1), USERINFO_SET);
          }
          pointer += at; // just before the host
          state = HOST;
          break;
        }

        case HOST:
        case HOSTNAME:
          if (override !== 0 && url.scheme === "file") {
            pointer--;
            state = FILE_HOST;
          } else if ((c === COLON && !inBrackets) || endsAuthority(c)) {
            if (buffer === "" && (c === COLON || url.isSpecial)) return null;
            if (c === COLON && override === HOSTNAME) return null;
            if (buffer === "" && override !== 0 && (url.hasCredentials || url.port !== null)) return null;
            const host = parseHost(buffer, !url.isSpecial);
            if (host === null) return null;
            url.host = host;
            buffer = "";
            if (c === COLON) {
              state = PORT;
            } else {
              if (override !== 0) return url;
              pointer--;
              state = PATH_START;
            }
          } else {
            if (c === OPEN_BRACKET) inBrackets = true;
            if (c === CLOSE_BRACKET) inBrackets = false;
            buffer += input[pointer];
          }
          break;

        case PORT:
          if (isDigit(c)) {
            buffer += input[pointer];
          } else if (endsAuthority(c) || override !== 0) {
            if (buffer !== "") {
              const port = +buffer;
              if (port > 65535) return null;
              url.setPort(port);
              buffer = "";
            }
            if (override !== 0) return url;
            state = PATH_START;
            pointer--;
          } else {
            return null;
          }
          break;

        case FILE:
          url.scheme = "file";
          url.host = "";
          if (isSlash(c)) {
            state = FILE_SLASH;
          } else if (base !== null && base.scheme === "file") {
            url.host = base.host;
            url.path = arraySlice(base.path);
            url.query = base.query;
            if (c === QUESTION) {
              url.query = "";
              state = QUERY;
            } else if (c === HASH) {
              url.fragment = "";
              state = FRAGMENT;
            } else if (c !== EOF) {
              url.query = null;
              if (startsWithDriveLetter(input, pointer)) url.path = [];
              else url.shortenPath();
              state = PATH;
              pointer--;
            }
          } else {
            state = PATH;
            pointer--;
          }
          break;

        case FILE_SLASH:
          if (isSlash(c)) {
            state = FILE_HOST;
          } else {
            if (base !== null && base.scheme === "file") {
              url.host = base.host;
              const drive = base.path.length > 0 && isNormalizedDriveLetter(base.path[0]);
              if (drive && !startsWithDriveLetter(input, pointer)) append(url.path, base.path[0]);
            }
            state = PATH;
            pointer--;
          }
          break;

        case FILE_HOST:
          if (c !== EOF && !isSlash(c) && c !== QUESTION && c !== HASH) {
            buffer += input[pointer];
          } else {
            pointer--;
            if (override === 0 && isDriveLetter(buffer)) {
              state = PATH; // the buffer stays and becomes the first segment
            } else {
              const host = buffer === "" ? "" : parseHost(buffer, !url.isSpecial);
              if (host === null) return null;
              url.host = host === "localhost" ? "" : host;
              if (override !== 0) return url;
              buffer = "";
              state = PATH_START;
            }
          }
          break;

        case PATH_START:
          if (url.isSpecial) {
            state = PATH;
            if (!isSlash(c)) pointer--;
          } else if (override === 0 && c === QUESTION) {
            url.query = "";
            state = QUERY;
          } else if (override === 0 && c === HASH) {
            url.fragment = "";
            state = FRAGMENT;
          } else if (c !== EOF) {
            state = PATH;
            if (c !== SLASH) pointer--;
          } else if (override !== 0 && url.host === null) {
            append(url.path, "");
          }
          break;

        case PATH: {
          let end = pointer;
          let next = c;
          const special = url.isSpecial;
          while (
            next !== EOF &&
            next !== SLASH &&
            !(next === BACKSLASH && special) &&
            !(override === 0 && (next === QUESTION || next === HASH))
          ) {
            end++;
            next = end < input.length ? charCodeAt(input, end) : EOF;
          }
          const segment = buffer + percentEncode(slice(input, pointer, end), PATH_SET);
          const isLast = next !== SLASH && !(next === BACKSLASH && special);
          buffer = "";
          pointer = end;
          if (isDoubleDot(segment)) {
            url.shortenPath();
            if (isLast) append(url.path, "");
          } else if (isSingleDot(segment)) {
            if (isLast) append(url.path, "");
          } else if (url.scheme === "file" && url.path.length === 0 && isDriveLetter(segment)) {
            append(url.path, segment[0] + ":");
          } else {
            append(url.path, segment);
          }
          if (next === QUESTION) {
            url.query = "";
            state = QUERY;
          } else if (next === HASH) {
            url.fragment = "";
            state = FRAGMENT;
          }
          break;
        }

        case OPAQUE_PATH: {
          let end = pointer;
          while (end < input.length && charCodeAt(input, end) !== QUESTION && charCodeAt(input, end) !== HASH) end++;
          url.path = percentEncode(slice(input, pointer, end), C0_SET);
          pointer = end;
          if (end === input.length) break;
          // A space in front of "?" or "#" is encoded, so that the path never ends in one that a reparse would strip.
          if (url.path[url.path.length - 1] === " ") url.path = slice(url.path, 0, -1) + "%20";
          if (charCodeAt(input, end) === QUESTION) {
            url.query = "";
            state = QUERY;
          } else {
            url.fragment = "";
            state = FRAGMENT;
          }
          break;
        }

        case QUERY: {
          const hash = override === 0 ? indexOf(input, "#", pointer) : -1;
          const end = hash === -1 ? input.length : hash;
          url.query += percentEncode(slice(input, pointer, end), url.isSpecial ? SPECIAL_QUERY_SET : QUERY_SET);
          pointer = end;
          if (hash !== -1) {
            url.fragment = "";
            state = FRAGMENT;
          }
          break;
        }

        case FRAGMENT:
          url.fragment += percentEncode(slice(input, pointer), FRAGMENT_SET);
          return url;
      }
      if (pointer >= input.length) return url;
    }
  }

  // --- 4.5 URL serializing and 4.7 origin ---

  function serializePath(url) {
    if (url.hasOpaquePath) return url.path;
    return url.path.length === 0 ? "" : "/" + join(url.path, "/");
  }

  const serializeHostAndPort = (url) => (url.port === null ? url.host : url.host + ":" + url.port);

  function serializeURL(url) {
    let output = url.scheme + ":";
    if (url.host !== null) {
      output += "//";
      if (url.hasCredentials) output += url.username + (url.password === "" ? "" : ":" + url.password) + "@";
      output += serializeHostAndPort(url);
    } else if (!url.hasOpaquePath && url.path.length > 1 && url.path[0] === "") {
      output += "/."; // else a path of "//x" would be read back as a host
    }
    output += serializePath(url);
    if (url.query !== null) output += "?" + url.query;
    if (url.fragment !== null) output += "#" + url.fragment;
    return output;
  }

  function serializeOrigin(url) {
    if (url.scheme === "blob") {
      const inner = parseURL(serializePath(url));
      const isHTTP = inner !== null && (inner.scheme === "http" || inner.scheme === "https");
      return isHTTP ? serializeOrigin(inner) : "null";
    }
    if (!url.isSpecial || url.scheme === "file") return "null";
    return url.scheme + "://" + serializeHostAndPort(url);
  }

  // --- 5 application/x-www-form-urlencoded. A list is an array of [name, value] arrays. ---

  function parseForm(input) {
    const list = [];
    const sequences = split(input, "&");
    for (let index = 0; index < sequences.length; index++) {
      const sequence = sequences[index];
      if (sequence === "") continue;
      const equals = indexOf(sequence, "=");
      const name = equals === -1 ? sequence : slice(sequence, 0, equals);
      const value = equals === -1 ? "" : slice(sequence, equals + 1);
      append(list, [decodeFormPart(name), decodeFormPart(value)]);
    }
    return list;
  }

  const decodeFormPart = (text) => percentDecode(indexOf(text, "+") === -1 ? text : join(split(text, "+"), " "));

  function serializeForm(list) {
    let output = "";
    for (let index = 0; index < list.length; index++) {
      const pair = list[index];
      if (index > 0) output += "&";
      output += percentEncode(pair[0], FORM_SET, true) + "=" + percentEncode(pair[1], FORM_SET, true);
    }
    return output;
  }

  // --- 6.2 URLSearchParams class ---

  function requireArguments(count, required, what) {
    if (count >= required) return;
    throw new TypeError(what + " needs " + required + (required === 1 ? " argument" : " arguments"));
  }

  /** Web IDL: sequence<sequence<USVString>>. */
  function pairsFromSequence(sequence) {
    const list = [];
    for (const entry of sequence) {
      const isObject = (typeof entry === "object" && entry !== null) || typeof entry === "function";
      if (!isObject || typeof entry[iteratorSymbol] !== "function") {
        throw new TypeError("URLSearchParams: each entry must be a [name, value] pair");
      }
      const pair = [];
      for (const part of entry) append(pair, toUSVString(part));
      if (pair.length !== 2) throw new TypeError("URLSearchParams: each entry must be a [name, value] pair");
      append(list, pair);
    }
    return list;
  }

  /** Web IDL: record<USVString, USVString>. */
  function pairsFromRecord(record) {
    const list = [];
    const keys = ownKeys(record);
    for (let index = 0; index < keys.length; index++) {
      const descriptor = getOwnPropertyDescriptor(record, keys[index]);
      if (descriptor === undefined || !descriptor.enumerable) continue;
      const name = toUSVString(keys[index]);
      const value = toUSVString(record[keys[index]]);
      // Keys that differ only in lone surrogates become one.
      let at = 0;
      while (at < list.length && list[at][0] !== name) at++;
      list[at] = [name, value];
    }
    return list;
  }

  // The doors through which URL and the iterator reach a URLSearchParams; guest code has no such access.
  let listOf;
  let replaceList;
  let connect;

  class URLSearchParams {
    #list;
    #onChange = null; // set when this is some URL's searchParams

    static {
      listOf = (params) => params.#list;
      replaceList = (params, list) => {
        params.#list = list;
      };
      connect = (params, onChange) => {
        params.#onChange = onChange;
      };
    }

    constructor(init = "") {
      if ((typeof init === "object" && init !== null) || typeof init === "function") {
        const method = init[iteratorSymbol];
        if (method !== undefined && method !== null) {
          if (typeof method !== "function") throw new TypeError("URLSearchParams: the argument is not iterable");
          this.#list = pairsFromSequence(init);
        } else {
          this.#list = pairsFromRecord(init);
        }
      } else {
        const text = toUSVString(init);
        this.#list = parseForm(charCodeAt(text, 0) === QUESTION ? slice(text, 1) : text);
      }
    }

    #changed() {
      if (this.#onChange !== null) this.#onChange(serializeForm(this.#list));
    }

    get size() {
      return this.#list.length;
    }

    append(name, value) {
      const list = this.#list;
      requireArguments(arguments.length, 2, "URLSearchParams.append");
      append(list, [toUSVString(name), toUSVString(value)]);
      this.#changed();
    }

    delete(name, value = undefined) {
      const list = this.#list;
      requireArguments(arguments.length, 1, "URLSearchParams.delete");
      const wanted = toUSVString(name);
      const only = value === undefined ? undefined : toUSVString(value);
      let kept = 0;
      for (let index = 0; index < list.length; index++) {
        const pair = list[index];
        if (pair[0] !== wanted || (only !== undefined && pair[1] !== only)) list[kept++] = pair;
      }
      list.length = kept;
      this.#changed();
    }

    get(name) {
      const list = this.#list;
      requireArguments(arguments.length, 1, "URLSearchParams.get");
      const wanted = toUSVString(name);
      for (let index = 0; index < list.length; index++) if (list[index][0] === wanted) return list[index][1];
      return null;
    }

    getAll(name) {
      const list = this.#list;
      requireArguments(arguments.length, 1, "URLSearchParams.getAll");
      const wanted = toUSVString(name);
      const values = [];
      for (let index = 0; index < list.length; index++) if (list[index][0] === wanted) append(values, list[index][1]);
      return values;
    }

    has(name, value = undefined) {
      const list = this.#list;
      requireArguments(arguments.length, 1, "URLSearchParams.has");
      const wanted = toUSVString(name);
      const only = value === undefined ? undefined : toUSVString(value);
      for (let index = 0; index < list.length; index++) {
        if (list[index][0] === wanted && (only === undefined || list[index][1] === only)) return true;
      }
      return false;
    }

    set(name, value) {
      const list = this.#list;
      requireArguments(arguments.length, 2, "URLSearchParams.set");
      const wanted = toUSVString(name);
      const pair = [wanted, toUSVString(value)];
      let kept = 0;
      let done = false;
      for (let index = 0; index < list.length; index++) {
        if (list[index][0] !== wanted) {
          list[kept++] = list[index];
        } else if (!done) {
          list[kept++] = pair;
          done = true;
        }
      }
      if (!done) list[kept++] = pair;
      list.length = kept;
      this.#changed();
    }

    sort() {
      arraySort(this.#list, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#changed();
    }

    toString() {
      return serializeForm(this.#list);
    }

    entries() {
      return new SearchParamsIterator(this, (pair) => [pair[0], pair[1]]);
    }

    forEach(callback, thisArg = undefined) {
      this.#list;
      requireArguments(arguments.length, 1, "URLSearchParams.forEach");
      if (typeof callback !== "function") throw new TypeError("URLSearchParams.forEach needs a function");
      // The list is looked up again each time: the callback may change it, or set the URL's search.
      const call = uncurry(callback);
      for (let index = 0; index < this.#list.length; index++) {
        const pair = this.#list[index];
        call(thisArg, pair[1], pair[0], this);
      }
    }

    keys() {
      return new SearchParamsIterator(this, (pair) => pair[0]);
    }

    values() {
      return new SearchParamsIterator(this, (pair) => pair[1]);
    }
  }

  class SearchParamsIterator {
    #params;
    #pick;
    #index = 0;

    constructor(params, pick) {
      listOf(params); // the brand check
      this.#params = params;
      this.#pick = pick;
    }

    next() {
      const list = listOf(this.#params);
      if (this.#index >= list.length) return { value: undefined, done: true };
      return { value: this.#pick(list[this.#index++]), done: false };
    }
  }

  // --- 6.1 URL class ---

  /** The "API URL parser"; `base` is undefined or a string. */
  function parseWithBase(text, base) {
    const baseRecord = base === undefined ? null : parseURL(base);
    return baseRecord === null && base !== undefined ? null : parseURL(text, baseRecord);
  }

  const optionalText = (value) => (value === undefined ? undefined : toUSVString(value));

  const FROM_RECORD = {}; // tells the constructor that the record follows, so that URL.parse parses once
  let fromRecord;

  class URL {
    #url;
    #params = null; // made when first asked for

    static {
      fromRecord = (record) => {
        const url = new URL(FROM_RECORD);
        url.#url = record;
        return url;
      };
    }

    constructor(url, base = undefined) {
      if (url === FROM_RECORD) return;
      requireArguments(arguments.length, 1, "The URL constructor");
      const text = toUSVString(url);
      const baseText = optionalText(base);
      const record = parseWithBase(text, baseText);
      if (record === null) {
        throw new TypeError("Invalid URL: " + text + (baseText === undefined ? "" : " (base: " + baseText + ")"));
      }
      this.#url = record;
    }

    static parse(url, base = undefined) {
      requireArguments(arguments.length, 1, "URL.parse");
      const record = parseWithBase(toUSVString(url), optionalText(base));
      return record === null ? null : fromRecord(record);
    }

    static canParse(url, base = undefined) {
      requireArguments(arguments.length, 1, "URL.canParse");
      return parseWithBase(toUSVString(url), optionalText(base)) !== null;
    }

    #refreshParams(query) {
      if (this.#params !== null) replaceList(this.#params, parseForm(query));
    }

    get href() {
      return serializeURL(this.#url);
    }

    set href(value) {
      this.#url;
      const text = toUSVString(value);
      const record = parseURL(text);
      if (record === null) throw new TypeError("Invalid URL: " + text);
      this.#url = record;
      this.#refreshParams(record.query ?? "");
    }

    get origin() {
      return serializeOrigin(this.#url);
    }

    get protocol() {
      return this.#url.scheme + ":";
    }

    set protocol(value) {
      const url = this.#url;
      parseURL(toUSVString(value) + ":", null, url, SCHEME_START);
    }

    get username() {
      return this.#url.username;
    }

    set username(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (!url.cannotHaveCredentialsOrPort) url.username = percentEncode(text, USERINFO_SET);
    }

    get password() {
      return this.#url.password;
    }

    set password(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (!url.cannotHaveCredentialsOrPort) url.password = percentEncode(text, USERINFO_SET);
    }

    get host() {
      const url = this.#url;
      return url.host === null ? "" : serializeHostAndPort(url);
    }

    set host(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (!url.hasOpaquePath) parseURL(text, null, url, HOST);
    }

    get hostname() {
      return this.#url.host ?? "";
    }

    set hostname(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (!url.hasOpaquePath) parseURL(text, null, url, HOSTNAME);
    }

    get port() {
      const { port } = this.#url;
      return port === null ? "" : "" + port;
    }

    set port(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (url.cannotHaveCredentialsOrPort) return;
      if (text === "") url.port = null;
      else parseURL(text, null, url, PORT);
    }

    get pathname() {
      return serializePath(this.#url);
    }

    set pathname(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (url.hasOpaquePath) return;
      url.path = [];
      parseURL(text, null, url, PATH_START);
    }

    get search() {
      const { query } = this.#url;
      return query === null || query === "" ? "" : "?" + query;
    }

    set search(value) {
      const url = this.#url;
      const text = toUSVString(value);
      const query = charCodeAt(text, 0) === QUESTION ? slice(text, 1) : text;
      if (text === "") {
        url.query = null;
      } else {
        url.query = "";
        parseURL(query, null, url, QUERY);
      }
      this.#refreshParams(query); // with the tabs and newlines that the URL loses, as the standard has it
    }

    get searchParams() {
      const { query } = this.#url;
      if (this.#params === null) {
        this.#params = new URLSearchParams();
        replaceList(this.#params, parseForm(query ?? ""));
        connect(this.#params, (serialized) => {
          this.#url.query = serialized === "" ? null : serialized;
        });
      }
      return this.#params;
    }

    get hash() {
      const { fragment } = this.#url;
      return fragment === null || fragment === "" ? "" : "#" + fragment;
    }

    set hash(value) {
      const url = this.#url;
      const text = toUSVString(value);
      if (text === "") {
        url.fragment = null;
      } else {
        url.fragment = "";
        parseURL(charCodeAt(text, 0) === HASH ? slice(text, 1) : text, null, url, FRAGMENT);
      }
    }

    toString() {
      return serializeURL(this.#url);
    }

    toJSON() {
      return serializeURL(this.#url);
    }
  }

  // Web IDL: members are enumerable, the interface object on the global is not.
  const expose = (object, hidden) => {
    for (const key of ownKeys(object)) {
      if (typeof key === "string" && !hidden.includes(key)) defineProperty(object, key, { enumerable: true });
    }
  };
  for (const Interface of [URL, URLSearchParams]) {
    const { name, prototype } = Interface;
    expose(prototype, ["constructor"]);
    expose(Interface, ["length", "name", "prototype"]);
    defineProperty(prototype, toStringTag, { value: name, configurable: true });
    defineProperty(globalThis, name, { value: Interface, writable: true, configurable: true, enumerable: false });
  }
  defineProperty(URLSearchParams.prototype, iteratorSymbol, {
    value: URLSearchParams.prototype.entries,
    writable: true,
    configurable: true,
  });

  const iteratorPrototype = SearchParamsIterator.prototype;
  setPrototypeOf(iteratorPrototype, getPrototypeOf(getPrototypeOf([][iteratorSymbol]())));
  delete iteratorPrototype.constructor;
  expose(iteratorPrototype, []);
  defineProperty(iteratorPrototype, toStringTag, { value: "URLSearchParams Iterator", configurable: true });
})();
