// The locales of the bundle: their names, their data and the checks of arguments that all classes share.
import { dates, numbers, relative, lists, parents, defaults } from "./data.js";

export { parents };

const SECTIONS = { dates, numbers, relative, lists };
const parsed = { dates: {}, numbers: {}, relative: {}, lists: {} };

function merged(base, changes) {
  if (changes === null || typeof changes !== "object" || Array.isArray(changes)) return changes;
  if (base === null || typeof base !== "object" || Array.isArray(base)) base = {};
  const found = { ...base };
  for (const key of Object.keys(changes)) {
    if (changes[key] === null) delete found[key];
    else found[key] = merged(base[key], changes[key]);
  }
  return found;
}

// Return the data of a locale, which is parsed when it is first used.
export function dataOf(section, name) {
  const known = parsed[section];
  if (known[name] === undefined) {
    const own = JSON.parse(SECTIONS[section][name]);
    known[name] = parents[name] === null ? own : merged(dataOf(section, parents[name]), own);
  }
  return known[name];
}

export const names = Object.keys(parents);
export const available = [...names, ...Object.keys(defaults)].sort();

// Return the locale with the data of a locale without extensions; undefined if there is none.
export function known(tag) {
  if (parents[tag] !== undefined) return tag;
  return Object.hasOwn(defaults, tag) ? defaults[tag] : undefined;
}

export function refuse(message) {
  throw new RangeError(message);
}

// Split a canonical tag into the tag without extensions and the keywords of `-u-`.
export function keywords(tag) {
  const at = tag.indexOf("-u-");
  const found = {};
  if (at < 0) return [tag, found];
  let rest = tag.slice(at + 3).split("-");
  let key;
  while (rest.length > 0 && rest[0].length > 1) {
    if (rest[0].length === 2) found[(key = rest[0])] = "";
    else if (key !== undefined) found[key] += (found[key] && "-") + rest[0];
    rest = rest.slice(1);
  }
  return [tag.slice(0, at) + rest.map((part) => "-" + part).join(""), found];
}

// Return `[data, base, keywords]` of the first requested locale. Node would fall back to another locale, or to data that
// is not here, so a locale without data is refused.
export function chosen(service, requested, keys) {
  const tag = requested.length === 0 ? "en-US" : requested[0];
  const [base, given] = keywords(tag);
  const data = known(base);
  if (data === undefined) {
    refuse(`${service}: the locale ${JSON.stringify(tag)} is not available here. There are: ${available.join(", ")}`);
  }
  const used = {};
  for (const key of keys) if (given[key] !== undefined) used[key] = given[key];
  return [data, base === "nb-NO" ? "nb" : base, used];
}

// Write a locale with those keywords that were used.
export function withKeywords(base, used) {
  const list = Object.keys(used).sort();
  if (list.length === 0) return base;
  return base + "-u-" + list.map((key) => key + (used[key] === "" || used[key] === "true" ? "" : "-" + used[key])).join("-");
}

// Return an option as ECMA-402 reads it.
export function option(options, name, type, values, otherwise) {
  let value = options[name];
  if (value === undefined) return otherwise;
  value = type === "boolean" ? Boolean(value) : String(value);
  if (values !== undefined && !values.includes(value)) refuse(`Value ${value} out of range for ${service(options)} options property ${name}`);
  return value;
}

const services = new WeakMap();
function service(options) {
  return services.get(options) ?? "Intl";
}

// Return the options as an object, and remember for which class they are.
export function optionsOf(value, name) {
  if (value === null) throw new TypeError(name + " called on null or undefined");
  const found = value === undefined ? Object.create(null) : Object(value);
  const view = new Proxy(found, {});
  services.set(view, name);
  return view;
}
