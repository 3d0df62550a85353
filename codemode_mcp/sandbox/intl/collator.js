// Intl.Collator, which extends the order of texts in the prelude (`65_locale.js`) by options and by the letters of languages.
import { chosen, option, optionsOf, refuse, withKeywords } from "./locales.js";
import { getCanonicalLocales } from "./packages.js";
import { describe, stateIn, unnamed } from "./classes.js";

const SERVICE = "Intl.Collator";
const states = new WeakMap();
let host;

export function useHost(given) {
  host = given;
}

const LATIN_A = 0x20000 + 16; // the rank of "a" in the prelude
const LATIN = "abcdefghijklmnopqrstuvwxyz";
const CYRILLIC = "абвгґдеєжзиіїйклмнопрстуфхцчшщъыьэюя";
const GREEK = "αβγδεζηθικλμνξοπρστυφχψω";
// Letters that follow another letter as letters of their own. Further characters after a slash are their variants, or
// variants of the other letter.
const TAILORED = {
  da: ["y /ü", "z æ/ä ø/öőœ å"], nb: ["y /ü", "z æ/ä ø/öőœ å"], es: ["n ñ"], fi: ["y /ü", "z å ä/æ ö/øőœ"],
  sv: ["y /ü", "z å ä/æ ö/øőœ"],
  cs: ["c č", "h ch", "r ř", "s š", "z ž"], pl: ["a ą", "c ć", "e ę", "l ł", "n ń", "o ó", "s ś", "z ź ż"],
  tr: ["c ç", "g ğ", "h ı", "o ö", "s ş", "u ü"],
};
const PLAIN = ["en", "de", "fr", "id", "it", "nl", "pt", "ru", "uk", "el"];
const OTHER_SCRIPT = /[^\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Common}\p{Script=Inherited}\p{Script=Han}]/u;
const FAR_LETTER = /[^\u0000-\u024f\u1e00-\u1eff\p{Script=Common}\p{Script=Inherited}]/u;

const tables = new Map();

// Return the ranks of letters that the prelude does not know, for a language.
function table(language) {
  let found = tables.get(language);
  if (found !== undefined) return found;
  found = new Map();
  const alphabet = (letters, first) => [...letters].forEach((letter, i) => found.set(letter, [first + i, 1]));
  const before = LATIN_A - 8;
  alphabet(GREEK, language === "el" ? before : LATIN_A + 40);
  alphabet(CYRILLIC, LATIN_A + 80);
  if (language === "el") for (const [letter, [rank]] of found) if (GREEK.includes(letter)) found.set(letter, [before + (rank - before) / 8, 1]);
  if (language === "ru" || language === "uk") for (const letter of CYRILLIC) found.set(letter, [before + CYRILLIC.indexOf(letter) / 8, 1]);
  found.set("ς", found.get("σ"));
  if (language === "tr") found.set("İ", [LATIN_A + LATIN.indexOf("i"), 1]);
  for (const row of TAILORED[language] ?? []) {
    const [first, ...after] = row.split(" ");
    after.forEach((letters, i) => {
      const [own, variants = ""] = letters.split("/");
      const rank = LATIN_A + LATIN.indexOf(first) + (own === "" ? 0 : (i + 1) / 16);
      if (own !== "") found.set(own, [rank, 1]);
      [...variants].forEach((letter, j) => found.set(letter, [rank, 2 + j]));
    });
  }
  if (language === "tr") found.set("I", found.get("ı"));
  const letters = [...found.keys()].sort((a, b) => b.length - a.length).join("|");
  found.pattern = new RegExp(letters, "giu");
  tables.set(language, found);
  return found;
}

// Return the letters, accents and cases of a text, each as a list of numbers.
function elements(text, { language, numeric, ignorePunctuation }) {
  const letters = [], accents = [], cases = [];
  if (ignorePunctuation) text = text.replace(/[\p{P}\s]/gu, "\u0001"); // which has no rank, and divides numbers
  const normal = text.normalize("NFC");
  if (OTHER_SCRIPT.test(normal)) refuse(`${SERVICE}: the order of ${JSON.stringify(OTHER_SCRIPT.exec(normal)[0])} is not available here; there are Latin, Greek, Cyrillic and Han`);
  const known = table(language);
  const usual = (part) => {
    const found = host.collated(part);
    for (let i = 0; i < found.length; i++) {
      letters.push(found.letters[i]);
      accents.push(found.accents[i]);
      cases.push(found.cases[i]);
    }
  };
  const plain = (part) => {
    if (!numeric) return usual(part);
    for (const run of part.split(/(\d+)/)) {
      if (!/^[0-9]/.test(run)) usual(run);
      else {
        const digits = run.replace(/^0+(?=.)/, "");
        for (const value of [0x20000, digits.length, ...[...digits].map(Number)]) {
          letters.push(value);
          accents.push(1);
          cases.push(0);
        }
      }
    }
  };
  // Accents of Greek and Cyrillic letters are apart from the letters; those of tailored letters are part of them.
  const apart = FAR_LETTER.test(normal) ? normal.replace(/[\p{Script=Greek}\p{Script=Cyrillic}]/gu, (char) => (/[йїѓґ]/iu.test(char) ? char : char.normalize("NFD"))) : normal;
  let at = 0;
  for (const match of apart.matchAll(known.pattern)) {
    plain(apart.slice(at, match.index));
    at = match.index + match[0].length;
    const lower = language === "tr" && match[0] === "I" ? "ı" : match[0].toLowerCase();
    const entry = known.get(lower) ?? known.get(match[0]);
    if (entry === undefined || (language === "tr" && match[0] === "i")) {
      usual(match[0]);
      continue;
    }
    letters.push(entry[0]);
    accents.push(entry[1]);
    cases.push(match[0] === lower ? 0 : match[0] === match[0].toUpperCase() ? 1 : 0.5);
    const marks = /^\p{M}+/u.exec(apart.slice(at));
    if (marks !== null) {
      at += marks[0].length;
      const base = host.collated("a" + marks[0]);
      accents[accents.length - 1] = base.accents[0];
    }
  }
  plain(apart.slice(at));
  return { letters, accents, cases };
}

function ordered(a, b) {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
  return a.length - b.length === 0 ? 0 : a.length < b.length ? -1 : 1;
}

export function compare(state, a, b) {
  if (a === b) return 0;
  const { sensitivity, caseFirst } = state.options;
  const one = elements(a, state), other = elements(b, state);
  let order = ordered(one.letters, other.letters);
  if (order === 0 && caseFirst !== "false" && sensitivity === "variant") order = 0;
  if (order === 0 && (sensitivity === "accent" || sensitivity === "variant")) order = ordered(one.accents, other.accents);
  if (order === 0 && (sensitivity === "case" || sensitivity === "variant")) {
    order = ordered(one.cases, other.cases) * (caseFirst === "upper" ? -1 : 1);
  }
  return order;
}

export function Collator() {
  const self = new.target === undefined ? Object.create(Collator.prototype) : this;
  states.set(self, stateFor(arguments[0], arguments[1], SERVICE));
  return self;
}

// Return the state of a collator. `service`: the name of the constructor or method, for messages.
export function stateFor(locales, given, service) {
  const requested = getCanonicalLocales(locales);
  const options = optionsOf(given, service);
  const usage = option(options, "usage", "string", ["sort", "search"], "sort");
  option(options, "localeMatcher", "string", ["lookup", "best fit"]);
  const collation = option(options, "collation", "string");
  const numeric = option(options, "numeric", "boolean");
  const caseFirst = option(options, "caseFirst", "string", ["upper", "lower", "false"]);
  const [name, base, used] = chosen(SERVICE, requested, ["co", "kn", "kf"]);
  const language = name.split("-")[0];
  if (!PLAIN.includes(language) && TAILORED[language] === undefined || name === "fr-CA") {
    refuse(`${SERVICE}: the order of the locale ${JSON.stringify(base)} is not available here. There are: ${[...PLAIN, ...Object.keys(TAILORED)].sort().join(", ")}`);
  }
  if (usage === "search") refuse(`${SERVICE}: the usage search is not available here; there is sort`);
  if ((collation ?? used.co ?? "default") !== "default") refuse(`${SERVICE}: the collation ${collation ?? used.co} is not available here; there is default`);
  delete used.co;
  const sensitivity = option(options, "sensitivity", "string", ["base", "accent", "case", "variant"], "variant");
  const ignorePunctuation = option(options, "ignorePunctuation", "boolean", undefined, false);
  const isNumeric = numeric ?? (used.kn !== undefined && used.kn !== "false");
  const first = caseFirst ?? used.kf ?? (language === "da" ? "upper" : "false");
  if (numeric !== undefined && used.kn !== undefined && isNumeric !== (used.kn !== "false")) delete used.kn;
  if (caseFirst !== undefined && used.kf !== caseFirst) delete used.kf;
  const shown = {
    locale: withKeywords(base, used), usage, sensitivity, ignorePunctuation, collation: "default", numeric: isNumeric, caseFirst: first,
  };
  return { options: shown, language, numeric: isNumeric, ignorePunctuation };
}

describe(Collator, "Collator", {
  get compare() {
    const state = stateIn(states, this, "Collator", "compare");
    return (state.bound ??= unnamed((a, b) => compare(state, String(a), String(b))));
  },
  resolvedOptions() {
    return { ...stateIn(states, this, "Collator", "resolvedOptions").options };
  },
});
