// TextEncoder and TextDecoder, after the WHATWG Encoding Standard (https://encoding.spec.whatwg.org/).
//
// Decoders: UTF-8, UTF-16LE, UTF-16BE and windows-1252 (whose labels include "latin1" and "ascii"). The other legacy
// encodings need index tables that would weigh more than this whole prelude; their labels give the RangeError that the
// standard prescribes for unknown ones. TextEncoderStream and TextDecoderStream are absent, like every other stream.
(() => {
  "use strict";

  // Guest code may overwrite any built-in later; what is used after load time is taken now. For the same reason nothing
  // below iterates or destructures an array, or uses a template literal, which is a call of String.prototype.concat in
  // this engine: a guest can replace what they look up.
  const { encodeUtf8, decodeUtf8 } = natives;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const getter = (object, name) => uncurry(Object.getOwnPropertyDescriptor(object, name).get);
  const { apply, defineProperty, getPrototypeOf, ownKeys } = Reflect;
  const { isView } = ArrayBuffer;
  const { fromCharCode } = String;
  const charCodeAt = uncurry(String.prototype.charCodeAt);
  const stringSlice = uncurry(String.prototype.slice);
  const toLowerCase = uncurry(String.prototype.toLowerCase);
  const toWellFormed = uncurry(String.prototype.toWellFormed);
  const NativeString = String;
  const NativeUint8Array = Uint8Array;
  const NativeUint16Array = Uint16Array;
  const TypedArrayPrototype = getPrototypeOf(Uint8Array.prototype);
  const typedArrayName = getter(TypedArrayPrototype, Symbol.toStringTag);
  const typedArrayBuffer = getter(TypedArrayPrototype, "buffer");
  const typedArrayOffset = getter(TypedArrayPrototype, "byteOffset");
  const typedArrayByteLength = getter(TypedArrayPrototype, "byteLength");
  const typedArraySet = uncurry(TypedArrayPrototype.set);
  const typedArraySubarray = uncurry(TypedArrayPrototype.subarray);
  const dataViewBuffer = getter(DataView.prototype, "buffer");
  const dataViewOffset = getter(DataView.prototype, "byteOffset");
  const dataViewByteLength = getter(DataView.prototype, "byteLength");
  const arrayBufferByteLength = getter(ArrayBuffer.prototype, "byteLength");
  const sharedArrayBufferByteLength = getter(SharedArrayBuffer.prototype, "byteLength");

  const REPLACEMENT = 0xfffd;
  const MALFORMED = "The encoded data was not valid";
  const CHUNK = 1024; // code units made into a string in one call: `apply` puts each on the engine's small stack
  const NO_BYTES = new NativeUint8Array(0);

  // 4.2 "Names and labels": the encodings kept here, each with all of its labels.
  const ENCODING_OF_LABEL = { __proto__: null };
  for (const [encoding, labels] of [
    ["utf-8", "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8"],
    ["utf-16le", "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le"],
    ["utf-16be", "unicodefffe utf-16be"],
    [
      "windows-1252",
      "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1 " +
        "iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    ],
  ]) {
    for (const label of labels.split(" ")) ENCODING_OF_LABEL[label] = encoding;
  }

  // Index windows-1252, bytes 0x80 to 0x9F; every other byte is its own code point.
  const WINDOWS_1252 =
    "\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f" +
    "\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178";

  const isSurrogate = (unit) => (unit & 0xf800) === 0xd800;
  const isLeading = (unit) => (unit & 0xfc00) === 0xd800;
  const isTrailing = (unit) => (unit & 0xfc00) === 0xdc00;

  /** Collects UTF-16 code units into one string. */
  class Output {
    #units = new NativeUint16Array(CHUNK);
    #count = 0;
    #text = "";

    unit(unit) {
      if (this.#count === CHUNK) this.#flush();
      this.#units[this.#count++] = unit;
    }

    /** Copy bytes below 0x80 from `index` on; return the index of the first other one. */
    ascii(bytes, index, length) {
      const units = this.#units;
      let count = this.#count;
      for (; index < length; index++) {
        const byte = bytes[index];
        if (byte >= 0x80) break;
        if (count === CHUNK) {
          this.#count = count;
          this.#flush();
          count = 0;
        }
        units[count++] = byte;
      }
      this.#count = count;
      return index;
    }

    finish() {
      this.#flush();
      return this.#text;
    }

    #flush() {
      const units = this.#count === CHUNK ? this.#units : typedArraySubarray(this.#units, 0, this.#count);
      this.#text += apply(fromCharCode, null, units);
      this.#count = 0;
    }
  }

  function malformed(output, fatal) {
    if (fatal) throw new TypeError(MALFORMED);
    output.unit(REPLACEMENT);
  }

  // These decoders append to `output` and return how many bytes they consumed. With `final` unset they stop before a
  // sequence that the end of the input cuts short, so that the next chunk can complete it.

  /** The index of a UTF-8 sequence that the end of the input cuts short; the length if there is none. */
  function completeUtf8(bytes) {
    const length = typedArrayByteLength(bytes);
    for (let index = length - 1; index >= 0 && index >= length - 3; index--) {
      const lead = bytes[index];
      if (lead >= 0x80 && lead < 0xc0) continue;
      const needed = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      if (index + needed <= length) return length;
      // What is there may be malformed already: decoded alone, it is one U+FFFD where it is only cut short.
      return decodeUtf8(copyFrom(bytes, index), false) === "\ufffd" ? index : length;
    }
    return length;
  }

  /** 14.2.1 "shared UTF-16 decoder". */
  function decodeUtf16(bytes, final, fatal, output, bigEndian) {
    const high = bigEndian ? 0 : 1;
    const length = typedArrayByteLength(bytes);
    const unitAt = (index) => (bytes[index + high] << 8) | bytes[index + 1 - high];
    let index = 0;
    for (; index + 1 < length; index += 2) {
      const unit = unitAt(index);
      if (!isSurrogate(unit)) {
        output.unit(unit);
      } else if (isTrailing(unit)) {
        malformed(output, fatal);
      } else if (index + 3 < length) {
        const next = unitAt(index + 2);
        if (isTrailing(next)) {
          output.unit(unit);
          output.unit(next);
          index += 2;
        } else {
          malformed(output, fatal);
        }
      } else if (final) {
        // At the end of the input, a leading surrogate and an odd byte behind it are one error together.
        malformed(output, fatal);
        return length;
      } else {
        return index;
      }
    }
    if (index === length || !final) return index;
    malformed(output, fatal);
    return length;
  }

  /** 9.1 "single-byte decoder". */
  function decodeWindows1252(bytes, output) {
    const length = typedArrayByteLength(bytes);
    for (let index = 0; (index = output.ascii(bytes, index, length)) < length; index++) {
      const byte = bytes[index];
      output.unit(byte < 0xa0 ? charCodeAt(WINDOWS_1252, byte - 0x80) : byte);
    }
    return length;
  }

  /** A Uint8Array over any Web IDL [AllowShared] BufferSource; a detached buffer counts as empty. */
  function bytesOf(source) {
    let buffer = source;
    let offset = 0;
    let length;
    if (isView(source)) {
      const name = typedArrayName(source);
      if (name === "Uint8Array") return source;
      buffer = name === undefined ? dataViewBuffer(source) : typedArrayBuffer(source);
      offset = name === undefined ? dataViewOffset(source) : typedArrayOffset(source);
      length = name === undefined ? dataViewByteLength(source) : typedArrayByteLength(source);
    } else {
      length = bufferByteLength(source);
    }
    return length === 0 ? NO_BYTES : new NativeUint8Array(buffer, offset, length);
  }

  function bufferByteLength(source) {
    try {
      return arrayBufferByteLength(source);
    } catch {
      try {
        return sharedArrayBufferByteLength(source);
      } catch {
        throw new TypeError("TextDecoder.decode: the input is not an ArrayBuffer or a view of one");
      }
    }
  }

  /** Not `slice`, which would ask a guest's subclass of Uint8Array for its constructor. */
  function copyFrom(bytes, start) {
    const length = typedArrayByteLength(bytes) - start;
    if (length === 0) return NO_BYTES;
    const copy = new NativeUint8Array(length);
    for (let index = 0; index < length; index++) copy[index] = bytes[start + index];
    return copy;
  }

  /** The first bytes of an array made here. */
  function firstOf(bytes, length) {
    return length === typedArrayByteLength(bytes) ? bytes : new NativeUint8Array(typedArrayBuffer(bytes), 0, length);
  }

  /** Web IDL DOMString: unlike String(), it refuses a symbol. */
  function toText(value) {
    if (typeof value === "symbol") throw new TypeError("Cannot convert a symbol to a string");
    return NativeString(value);
  }

  function dictionary(value, what) {
    if (value === undefined || value === null) return { __proto__: null };
    if (typeof value !== "object" && typeof value !== "function") {
      throw new TypeError(what + ": options must be an object");
    }
    return value;
  }

  class TextEncoder {
    #brand; // only its presence matters: the methods refuse other receivers

    get encoding() {
      this.#brand;
      return "utf-8";
    }

    encode(input = "") {
      this.#brand;
      return encodeUtf8(toWellFormed(toText(input)));
    }

    encodeInto(source, destination) {
      this.#brand;
      if (arguments.length < 2) throw new TypeError("TextEncoder.encodeInto needs a string and a Uint8Array");
      const text = toText(source);
      if (!isView(destination) || typedArrayName(destination) !== "Uint8Array") {
        throw new TypeError("TextEncoder.encodeInto: the destination is not a Uint8Array");
      }
      const room = typedArrayByteLength(destination);
      // A unit takes a byte or more. A pair that this cuts would not fit: half of it takes three.
      const beginning = stringSlice(text, 0, room);
      const bytes = encodeUtf8(toWellFormed(beginning));
      let read = beginning.length;
      let written = typedArrayByteLength(bytes);
      if (written > room) {
        written = room;
        while ((bytes[written] & 0xc0) === 0x80) written--;
        read = written === 0 ? 0 : decodeUtf8(firstOf(bytes, written), false).length;
      }
      if (written > 0) typedArraySet(destination, firstOf(bytes, written));
      return { read, written };
    }
  }

  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    #streaming = false; // the standard's "do not flush"
    #bomSeen = false;
    #pending = NO_BYTES; // the cut-off sequence at the end of the last chunk

    constructor(label = "utf-8", options = undefined) {
      const name = toText(label);
      const settings = dictionary(options, "TextDecoder");
      const fatal = Boolean(settings.fatal);
      const ignoreBOM = Boolean(settings.ignoreBOM);
      const encoding = ENCODING_OF_LABEL[toLowerCase(trimAsciiWhitespace(name))];
      if (encoding === undefined) {
        throw new RangeError('TextDecoder: no encoding "' + name + '" here, only utf-8, utf-16le, utf-16be and latin1');
      }
      this.#encoding = encoding;
      this.#fatal = fatal;
      this.#ignoreBOM = ignoreBOM;
    }

    get encoding() {
      return this.#encoding;
    }

    get fatal() {
      return this.#fatal;
    }

    get ignoreBOM() {
      return this.#ignoreBOM;
    }

    decode(input = undefined, options = undefined) {
      const wasStreaming = this.#streaming;
      const stream = Boolean(dictionary(options, "TextDecoder.decode").stream);
      let bytes = input === undefined ? NO_BYTES : bytesOf(input);
      if (!wasStreaming) this.#bomSeen = false;
      const pending = wasStreaming ? typedArrayByteLength(this.#pending) : 0;
      if (pending > 0 || this.#encoding === "utf-8") {
        const joined = new NativeUint8Array(pending + typedArrayByteLength(bytes));
        if (pending > 0) typedArraySet(joined, this.#pending);
        if (typedArrayByteLength(joined) > pending) typedArraySet(joined, bytes, pending);
        bytes = joined;
      }
      this.#pending = NO_BYTES;
      this.#streaming = stream;
      if (this.#encoding === "utf-8") return this.#withoutBOM(this.#utf8(bytes, stream));
      const output = new Output();
      const consumed = this.#run(bytes, !stream, output);
      if (stream) this.#pending = copyFrom(bytes, consumed);
      return this.#withoutBOM(output.finish());
    }

    #utf8(bytes, stream) {
      const length = stream ? completeUtf8(bytes) : typedArrayByteLength(bytes);
      const text = length === 0 ? "" : decodeUtf8(firstOf(bytes, length), this.#fatal);
      if (text === null) throw new TypeError(MALFORMED);
      if (stream) this.#pending = copyFrom(bytes, length);
      return text;
    }

    #run(bytes, final, output) {
      switch (this.#encoding) {
        case "windows-1252":
          return decodeWindows1252(bytes, output);
        default:
          return decodeUtf16(bytes, final, this.#fatal, output, this.#encoding === "utf-16be");
      }
    }

    // "Serialize I/O queue": only the first code point of a stream can be a byte order mark. Windows-1252 has none.
    #withoutBOM(text) {
      if (this.#bomSeen || text.length === 0) return text;
      this.#bomSeen = true;
      return !this.#ignoreBOM && charCodeAt(text, 0) === 0xfeff ? stringSlice(text, 1) : text;
    }
  }

  /** "Get an encoding" trims ASCII whitespace only, which is less than String.prototype.trim does. */
  function trimAsciiWhitespace(text) {
    const isSpace = (unit) => unit === 0x20 || unit === 0x09 || unit === 0x0a || unit === 0x0c || unit === 0x0d;
    let start = 0;
    let end = text.length;
    while (start < end && isSpace(charCodeAt(text, start))) start++;
    while (end > start && isSpace(charCodeAt(text, end - 1))) end--;
    return stringSlice(text, start, end);
  }

  // Web IDL: members are enumerable, the interface object on the global is not.
  for (const Interface of [TextEncoder, TextDecoder]) {
    const { name, prototype } = Interface;
    for (const key of ownKeys(prototype)) {
      if (key !== "constructor") defineProperty(prototype, key, { enumerable: true });
    }
    defineProperty(prototype, Symbol.toStringTag, { value: name, configurable: true });
    defineProperty(globalThis, name, { value: Interface, writable: true, configurable: true, enumerable: false });
  }
})();
