// Classes that look like those of the engine: methods are not enumerable, and some can be called without `new`.
import { known, keywords, refuse } from "./locales.js";
import { intlInternals } from "./internals.js";

export function describe(Class, name, members) {
  const { prototype } = Class;
  for (const [key, value] of Object.entries(Object.getOwnPropertyDescriptors(members))) {
    Object.defineProperty(prototype, key, { ...value, enumerable: false });
  }
  Object.defineProperty(prototype, Symbol.toStringTag, { value: "Intl." + name, configurable: true });
  Object.defineProperty(prototype, "constructor", { value: Class, writable: true, configurable: true, enumerable: false });
  Object.defineProperty(Class, "prototype", { writable: false });
  Object.defineProperty(Class, "name", { value: name, configurable: true });
  Object.defineProperty(Class, "length", { value: 0, configurable: true });
  const { supportedLocalesOf } = {
    supportedLocalesOf(locales, options = undefined) {
      if (options !== undefined) {
        const matcher = Object(options).localeMatcher;
        if (matcher !== undefined && matcher !== "lookup" && matcher !== "best fit") refuse(`Value ${matcher} out of range for ${name} options property localeMatcher`);
      }
      return intlInternals.getCanonicalLocales(locales).filter((tag) => known(keywords(tag)[0]) !== undefined);
    },
  };
  Object.defineProperty(supportedLocalesOf, "length", { value: 1, configurable: true });
  Object.defineProperty(Class, "supportedLocalesOf", { value: supportedLocalesOf, writable: true, configurable: true, enumerable: false });
  return Class;
}

// Return the state of an instance, which no program can reach.
export function stateIn(states, value, name, method) {
  const state = states.get(value);
  if (state === undefined) throw new TypeError(`Method Intl.${name}.prototype.${method} called on incompatible receiver ${String(value)}`);
  return state;
}

export function mustBeNew(target, name) {
  if (target === undefined) throw new TypeError(`Constructor Intl.${name} requires 'new'`);
}

export function unnamed(fn) {
  Object.defineProperty(fn, "name", { value: "", configurable: true });
  return fn;
}
