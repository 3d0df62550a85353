// structuredClone, after HTML 2.7 "Safe passing of structured data".
//
// Serialization and deserialization happen in one pass, because both ends are the same realm. The walk keeps its own
// stack, so depth costs heap and never the engine's small native stack.
//
// Differences from the standard, most of which plain JavaScript cannot remove:
// - Brands are probed only if the object or its prototype chain has a Symbol.toStringTag; without one, what
//   Object.prototype.toString says is taken. A Map whose prototype was replaced by Object.prototype passes for a plain
//   object.
// - A view that tracks the length of a resizable buffer is cloned with the length it has at that moment.
// - A transferred buffer is copied before the original is detached; a guest can tell only by the memory it takes.
// - SharedArrayBuffer is refused, as in a browser without cross-origin isolation: there is no second agent here.
// - An Error keeps its `stack` and `cause`, as in V8; the standard leaves such accompanying data to the implementation.
(() => {
  "use strict";

  // Guest code may overwrite any built-in later; what is used after load time is taken now. For the same reason there
  // are no template literals in what runs later: in this engine they call String.prototype.concat.
  const { isProxy, rawStack, setRawStack } = natives;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const getter = (object, name) => uncurry(Object.getOwnPropertyDescriptor(object, name).get);
  const { defineProperty, getOwnPropertyDescriptor } = Reflect;
  const { hasOwn, keys: objectKeys } = Object;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { isError } = Error;
  const { toStringTag } = Symbol;
  const toObject = Object;
  const NativeArrayBuffer = ArrayBuffer;
  const NativeDataView = DataView;
  const NativeDate = Date;
  const NativeDOMException = DOMException;
  const NativeMap = Map;
  const NativeRegExp = RegExp;
  const NativeSet = Set;
  const NativeString = String;
  const NativeTypeError = TypeError;
  const NativeUint8Array = Uint8Array;
  const TypedArrayPrototype = Object.getPrototypeOf(Uint8Array.prototype);
  const builtinTag = uncurry(Object.prototype.toString);
  const stringSlice = uncurry(String.prototype.slice);
  const mapGet = uncurry(Map.prototype.get);
  const mapSet = uncurry(Map.prototype.set);
  const mapHas = uncurry(Map.prototype.has);
  const mapForEach = uncurry(Map.prototype.forEach);
  const setAdd = uncurry(Set.prototype.add);
  const setForEach = uncurry(Set.prototype.forEach);
  const typedArrayName = getter(TypedArrayPrototype, toStringTag);
  const typedArrayBuffer = getter(TypedArrayPrototype, "buffer");
  const typedArrayOffset = getter(TypedArrayPrototype, "byteOffset");
  const typedArrayLength = getter(TypedArrayPrototype, "length");
  const typedArraySet = uncurry(TypedArrayPrototype.set);
  const dataViewBuffer = getter(DataView.prototype, "buffer");
  const dataViewOffset = getter(DataView.prototype, "byteOffset");
  const dataViewLength = getter(DataView.prototype, "byteLength");
  const bufferByteLength = getter(ArrayBuffer.prototype, "byteLength");
  const bufferMaxByteLength = getter(ArrayBuffer.prototype, "maxByteLength");
  const bufferResizable = getter(ArrayBuffer.prototype, "resizable");
  const bufferDetached = getter(ArrayBuffer.prototype, "detached");
  const bufferTransfer = uncurry(ArrayBuffer.prototype.transfer);
  const dateValue = uncurry(Date.prototype.getTime);
  const regExpSource = getter(RegExp.prototype, "source");
  const domExceptionName = getter(DOMException.prototype, "name");
  const domExceptionMessage = getter(DOMException.prototype, "message");

  // [[OriginalFlags]] flag by flag: the `flags` accessor would ask the object, and a guest can answer.
  const REGEXP_FLAGS = [
    ...[["d", "hasIndices"], ["g", "global"], ["i", "ignoreCase"], ["m", "multiline"]],
    ...[["s", "dotAll"], ["u", "unicode"], ["v", "unicodeSets"], ["y", "sticky"]],
  ].map(([letter, name]) => ({ letter, isSet: getter(RegExp.prototype, name) }));

  function regExpFlags(regExp) {
    let flags = "";
    for (let index = 0; index < REGEXP_FLAGS.length; index++) {
      const flag = REGEXP_FLAGS[index];
      if (flag.isSet(regExp)) flags += flag.letter;
    }
    return flags;
  }

  const TYPED_ARRAYS = { __proto__: null };
  for (const element of [
    ...["Int8", "Uint8", "Uint8Clamped", "Int16", "Uint16", "Int32", "Uint32"],
    ...["BigInt64", "BigUint64", "Float16", "Float32", "Float64"],
  ]) {
    TYPED_ARRAYS[`${element}Array`] = globalThis[`${element}Array`];
  }

  // StructuredSerializeInternal, step 17: the names that survive; an error of any other name becomes an Error.
  const ERRORS = { __proto__: null };
  for (const Native of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError]) {
    ERRORS[Native.name] = Native;
  }

  // Class string -> a function that throws unless the object has the internal slot. The boxed primitives' functions
  // return the value inside.
  const BRANDS = {
    __proto__: null,
    Map: getter(Map.prototype, "size"),
    Set: getter(Set.prototype, "size"),
    ArrayBuffer: bufferByteLength,
    Date: dateValue,
    RegExp: getter(RegExp.prototype, "global"),
    Boolean: uncurry(Boolean.prototype.valueOf),
    Number: uncurry(Number.prototype.valueOf),
    String: uncurry(String.prototype.valueOf),
    BigInt: uncurry(BigInt.prototype.valueOf),
    DOMException: domExceptionName,
  };
  const BRAND_NAMES = objectKeys(BRANDS);

  // Class strings of objects whose internal slots the standard does not serialize, and of platform objects that are
  // not serializable.
  const REFUSED = { __proto__: null };
  for (const name of [
    ...["Promise", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Symbol"],
    ...["Generator", "AsyncGenerator", "Array Iterator", "Map Iterator", "Set Iterator", "String Iterator"],
    ...["RegExp String Iterator", "Iterator Helper", "DisposableStack", "AsyncDisposableStack"],
    ...["URL", "URLSearchParams", "URLSearchParams Iterator", "TextEncoder", "TextDecoder", "Crypto", "Performance"],
  ]) {
    REFUSED[name] = true;
  }

  const dataCloneError = (what) => new NativeDOMException(what + " could not be cloned.", "DataCloneError");

  function hasBrand(name, object) {
    try {
      BRANDS[name](object);
      return true;
    } catch {
      return false;
    }
  }

  /** The name that decides how an object is cloned: a key of BRANDS, "Array", "View", "Error", or "Object". */
  function classOf(object) {
    if (isProxy(object)) throw dataCloneError("A Proxy");
    if (isArray(object)) return "Array";
    if (isView(object)) return "View";
    if (isError(object)) return "Error";
    const name = stringSlice(builtinTag(object), 8, -1);
    if (!(toStringTag in object)) {
      if (name === "Arguments") throw dataCloneError("An arguments object");
      return name in BRANDS ? name : "Object";
    }
    if (name in BRANDS && hasBrand(name, object)) return name;
    for (let index = 0; index < BRAND_NAMES.length; index++) {
      if (hasBrand(BRAND_NAMES[index], object)) return BRAND_NAMES[index];
    }
    if (name in REFUSED) throw dataCloneError("A value of class " + name);
    return "Object";
  }

  /** CreateDataProperty on an object made here. Only an inherited name can make assignment do anything else. */
  function setOwn(target, key, value) {
    if (key in target) {
      defineProperty(target, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
    } else {
      target[key] = value;
    }
  }

  function setHidden(target, key, value) {
    defineProperty(target, key, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  }

  /** The value of an own data property; accessors do not run. */
  function copyStack(from, to) {
    const frames = rawStack(from);
    const text = ownData(from, "stack");
    if (frames !== undefined) setRawStack(to, frames);
    if (frames === undefined || text !== undefined) setHidden(to, "stack", typeof text === "string" ? text : "");
  }

  function ownData(object, key) {
    const descriptor = getOwnPropertyDescriptor(object, key);
    return descriptor !== undefined && hasOwn(descriptor, "value") ? descriptor.value : undefined;
  }

  // A frame is a container whose contents are still to be cloned. `advance` works until it is done (false) or has put
  // the frame of a child on top (true); the target exists from the start, so cycles find it.

  class PropertiesFrame {
    constructor(below, source, target) {
      this.below = below;
      this.source = source;
      this.target = target;
      this.keys = objectKeys(source);
      this.next = 0;
      this.length = isArray(target) ? source.length : -1;
    }

    advance(walk) {
      const { source, target, keys } = this;
      while (this.next < keys.length) {
        const key = keys[this.next++];
        if (!hasOwn(source, key)) continue; // a getter may have deleted it
        setOwn(target, key, walk.clone(source[key]));
        if (walk.top !== this) return true;
      }
      if (this.length > target.length) target.length = this.length;
      return false;
    }
  }

  class CollectionFrame {
    constructor(below, source, target, isMap) {
      this.below = below;
      this.target = target;
      this.isMap = isMap;
      this.key = undefined;
      this.next = 0;
      // The entries as they are now; getters inside them may change the source. For a Map: key, value, key, ...
      const items = [];
      let count = 0;
      const put = (item) => setOwn(items, count++, item);
      if (isMap) {
        mapForEach(source, (value, key) => {
          put(key);
          put(value);
        });
      } else {
        setForEach(source, put);
      }
      this.items = items;
      this.count = count;
    }

    advance(walk) {
      while (this.next < this.count) {
        const index = this.next++;
        const item = walk.clone(this.items[index]);
        if (!this.isMap) setAdd(this.target, item);
        else if (index % 2 === 0) this.key = item;
        else mapSet(this.target, this.key, item);
        if (walk.top !== this) return true;
      }
      return false;
    }
  }

  class CauseFrame {
    constructor(below, source, target) {
      this.below = below;
      this.source = source;
      this.target = target;
      this.done = false;
    }

    advance(walk) {
      if (this.done) return false;
      this.done = true;
      setHidden(this.target, "cause", walk.clone(ownData(this.source, "cause")));
      return true;
    }
  }

  class Walk {
    constructor(memory) {
      this.memory = memory;
      this.top = null;
    }

    run(value) {
      const result = this.clone(value);
      while (this.top !== null) {
        const frame = this.top;
        if (!frame.advance(this)) this.top = frame.below;
      }
      return result;
    }

    /** StructuredSerializeInternal for one value: a primitive as it is, an object as its still empty clone. */
    clone(value) {
      if (typeof value === "symbol") throw dataCloneError("A symbol");
      if (typeof value === "function") throw dataCloneError("A function");
      if (typeof value !== "object" || value === null) return value;
      const known = mapGet(this.memory, value);
      if (known !== undefined) return known;
      const result = this.#shell(value, classOf(value));
      mapSet(this.memory, value, result);
      return result;
    }

    #shell(value, name) {
      switch (name) {
        case "Boolean":
        case "Number":
        case "String":
        case "BigInt":
          return toObject(BRANDS[name](value));
        case "Date":
          return new NativeDate(dateValue(value));
        case "RegExp":
          return new NativeRegExp(regExpSource(value), regExpFlags(value));
        case "ArrayBuffer":
          return cloneBuffer(value);
        case "View":
          return this.#view(value);
        case "Error":
          return this.#error(value);
        case "DOMException": {
          const result = new NativeDOMException(domExceptionMessage(value), domExceptionName(value));
          copyStack(value, result);
          return result;
        }
        case "Map":
        case "Set": {
          const result = name === "Map" ? new NativeMap() : new NativeSet();
          this.top = new CollectionFrame(this.top, value, result, name === "Map");
          return result;
        }
        default: {
          const result = name === "Array" ? [] : {};
          this.top = new PropertiesFrame(this.top, value, result);
          return result;
        }
      }
    }

    #view(view) {
      const name = typedArrayName(view);
      const isDataView = name === undefined;
      const buffer = isDataView ? dataViewBuffer(view) : typedArrayBuffer(view);
      const copy = this.clone(buffer);
      if (isDataView) {
        let offset;
        let length;
        try {
          offset = dataViewOffset(view);
          length = dataViewLength(view);
        } catch {
          throw dataCloneError("A view that is out of its buffer's bounds");
        }
        return new NativeDataView(copy, offset, length);
      }
      return new TYPED_ARRAYS[name](copy, typedArrayOffset(view), typedArrayLength(view));
    }

    #error(error) {
      const { name } = error;
      const message = getOwnPropertyDescriptor(error, "message");
      const Native = (typeof name === "string" && ERRORS[name]) || ERRORS.Error;
      const result = new Native();
      if (message !== undefined && hasOwn(message, "value")) {
        if (typeof message.value === "symbol") throw new NativeTypeError("Cannot convert a symbol to a string");
        setHidden(result, "message", NativeString(message.value));
      }
      copyStack(error, result);
      if (hasOwn(error, "cause")) this.top = new CauseFrame(this.top, error, result);
      return result;
    }
  }

  function emptyBuffer(like) {
    const length = bufferByteLength(like);
    if (!bufferResizable(like)) return new NativeArrayBuffer(length);
    return new NativeArrayBuffer(length, { maxByteLength: bufferMaxByteLength(like) });
  }

  function copyBytes(source, target) {
    typedArraySet(new NativeUint8Array(target), new NativeUint8Array(source));
  }

  function cloneBuffer(buffer) {
    if (bufferDetached(buffer)) throw dataCloneError("A detached ArrayBuffer");
    const copy = emptyBuffer(buffer);
    copyBytes(buffer, copy);
    return copy;
  }

  /** Web IDL conversion of StructuredSerializeOptions to its `transfer` list, without trusting array methods. */
  function transferList(options) {
    const list = { __proto__: null, length: 0 };
    if (options === undefined || options === null) return list;
    if (typeof options !== "object" && typeof options !== "function") {
      throw new TypeError("structuredClone: options must be an object");
    }
    const { transfer } = options;
    if (transfer === undefined) return list;
    if (transfer === null || typeof transfer !== "object") {
      throw new TypeError("structuredClone: options.transfer must be a list of objects");
    }
    for (const item of transfer) {
      if (item === null || (typeof item !== "object" && typeof item !== "function")) {
        throw new TypeError("structuredClone: options.transfer must be a list of objects");
      }
      list[list.length++] = item;
    }
    return list;
  }

  const { structuredClone } = {
    structuredClone(value, options = undefined) {
      if (arguments.length === 0) throw new TypeError("structuredClone needs a value");
      const transfer = transferList(options);
      const memory = new NativeMap();
      for (let index = 0; index < transfer.length; index++) {
        const buffer = transfer[index];
        if (!hasBrand("ArrayBuffer", buffer)) throw dataCloneError("A value that is not transferable");
        if (mapHas(memory, buffer)) throw dataCloneError("An ArrayBuffer listed twice for transfer");
        mapSet(memory, buffer, emptyBuffer(buffer));
      }
      const result = new Walk(memory).run(value);
      // StructuredSerializeWithTransfer: nothing is detached before the whole value has been read.
      for (let index = 0; index < transfer.length; index++) {
        const buffer = transfer[index];
        if (bufferDetached(buffer)) throw dataCloneError("A detached ArrayBuffer");
        copyBytes(buffer, mapGet(memory, buffer));
        bufferTransfer(buffer, 0);
      }
      return result;
    },
  };
  defineProperty(globalThis, "structuredClone", {
    value: structuredClone,
    writable: true,
    configurable: true,
    enumerable: false,
  });
})();
