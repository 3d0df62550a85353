// In place of the locale matcher of the packages: `locales.js` has chosen the locale before, so names are right or have
// the data of a shorter name.
function dataName(available, tag) {
  const has = (name) => (available.has ? available.has(name) : available.includes(name));
  for (let name = tag; name !== ""; name = name.slice(0, Math.max(0, name.lastIndexOf("-")))) if (has(name)) return name;
  return undefined;
}

export function ResolveLocale(available, requested, options, keys, localeData) {
  const found = dataName(available, requested[0]) ?? "en";
  const result = { locale: requested[0], dataLocale: found };
  for (const key of keys) result[key] = options[key] ?? localeData?.[found]?.[key]?.[0];
  return result;
}

export function LookupSupportedLocales(available, requested) {
  return requested.filter((tag) => dataName(available, tag) !== undefined);
}

// The list of all values is needed for information about locales that is not here.
export function supportedValuesOf() {
  return [];
}
