// The classes of the packages, with the data of the locales. Data is added when a locale is first used.
import { intlInternals } from "./internals.js";
import { getCanonicalLocales as canonical } from "@formatjs/intl-getcanonicallocales";
import { PluralRules } from "@formatjs/intl-pluralrules";
import { NumberFormat } from "@formatjs/intl-numberformat";
import RelativeTimeFormat from "@formatjs/intl-relativetimeformat";
import ListFormat from "@formatjs/intl-listformat";
import { Segmenter } from "@formatjs/intl-segmenter";
import { Locale } from "@formatjs/intl-locale";
import { dataOf, parents } from "./locales.js";

export function getCanonicalLocales(locales) {
  try {
    return canonical(locales);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new RangeError("Incorrect locale information provided");
  }
}

// The package has rules for languages, not for regions.
function pluralName(name) {
  return PluralRules.localeData[name] === undefined ? parents[name] : name;
}

class NamedRules extends PluralRules {
  #isArabic;
  constructor(name, options) {
    super(pluralName(name), options);
    this.#isArabic = name === "ar";
  }
  select(number) {
    const found = super.select(number);
    if (!this.#isArabic || (found !== "few" && found !== "many")) return found;
    // These two are for whole numbers, which the package does not check.
    const { maximumFractionDigits: most } = this.resolvedOptions();
    return Number.isInteger(most === undefined ? number : Number(Number(number).toFixed(most))) ? found : "other";
  }
}

// The rules for a number that is rounded already.
class RoundedRules extends NamedRules {
  constructor(name, { minimumFractionDigits, minimumSignificantDigits } = {}) {
    const isSignificant = minimumFractionDigits === undefined && minimumSignificantDigits !== undefined;
    super(name, isSignificant ? { minimumSignificantDigits, maximumSignificantDigits: 21 } : { minimumFractionDigits, maximumFractionDigits: 20 });
  }
}

Object.assign(intlInternals, { getCanonicalLocales, PluralRules: RoundedRules, NumberFormat, ListFormat, Locale });

const added = { numbers: {}, relative: {}, lists: {} };
const classes = { numbers: NumberFormat, relative: RelativeTimeFormat, lists: ListFormat };

export function loaded(section, name) {
  if (added[section][name] === undefined) {
    added[section][name] = true;
    classes[section].__addLocaleData({ data: dataOf(section, name), locale: name });
  }
  return classes[section];
}

export { NamedRules, NumberFormat, PluralRules, Segmenter, Locale };
