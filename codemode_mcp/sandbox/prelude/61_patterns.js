// Regular expressions that the engine would misread, translated before it compiles them: literals, constructors and
// `eval` alike. The program sees its own pattern and flags. The engine reads a pattern with the flag `v` as one with `u`,
// so that only its classes differ: sets within sets, `--` and `&&`. Each is written as a choice or a look ahead at one
// character, which reads alike in both directions. What matches several characters is refused.
// With `i`, the engine forgets the other case of a property outside of brackets, so it gets brackets.
const regExpExec = uncurry(RegExp.prototype.exec);
const NativeSyntaxError = SyntaxError;
const IGNORES_CASE = 1 << 8;
const HAS_SETS = 1 << 21;
const TOKEN = /\\(?:u(?:\{[^}]*\}|[dD][89abAB]..\\u[dD][c-fC-F]..|....)|x..|c.|[pPq]\{[^}]*\}|[^])|[^]/uy;
const STRINGS = /^\\[pP]\{(?:RGI_|Basic_Emoji|Emoji_Keycap_Sequence)/;
const ONLY_IN_SETS = "&-!#%,:;<=>@\x60~"; // may have a backslash only in sets
const DOUBLED = "&!#$%*+,.:;<=>?@^\x60~";

let patternText = ""; // of the pattern that is read

function badPattern(why) {
  return new NativeSyntaxError("invalid regular expression /" + clip(patternText, 500) + "/: " + why);
}

// `reader`: the text, and the position of the next token.
function nextToken(reader) {
  TOKEN.lastIndex = reader.at;
  const found = regExpExec(TOKEN, reader.text);
  reader.at = TOKEN.lastIndex;
  return found === null ? "" : found[0];
}

function checkProperty(property) {
  if (regExpExec(STRINGS, property) === null) return;
  throw badPattern(
    property + " matches texts of several characters, which is not supported here; " +
      "write \\p{Emoji_Presentation} or \\p{Extended_Pictographic} with the flag u",
  );
}

// Return what the engine takes for one property outside of brackets.
function bareProperty(property, flags) {
  if ((flags & IGNORES_CASE) === 0) return property;
  return (flags & HAS_SETS) !== 0 && property[1] === "P" ? "[^\\p" + stringSlice(property, 2) + "]" : "[" + property + "]";
}

// Return the member of a set that is one character, as a class of the engine takes it.
function setCharacter(token) {
  if (token === "^") return "\\^";
  if (token[0] !== "\\") {
    if (stringIndexOf("()[]{}/-|", token) >= 0) throw badPattern(token + " in a set of the flag v needs a backslash");
    return token;
  }
  const only = token.length === 2 && stringIndexOf(ONLY_IN_SETS, token[1]) >= 0;
  return only && token !== "\\-" ? token[1] : token;
}

function union(members, others) {
  if (others === "") return "[" + members + "]";
  return "(?:" + (members === "" ? stringSlice(others, 1) : "[" + members + "]" + others) + ")";
}

// Return what the engine takes for a set, whose opening bracket was read.
function setText(reader, flags) {
  const negated = reader.text[reader.at] === "^";
  if (negated) reader.at += 1;
  let members = ""; // what a class of the engine can have
  let others = ""; // other choices
  let count = 0; // of operands since the last operator
  let left = null; // what is left of an operator
  let operator = "";
  for (;;) {
    const pair = stringSlice(reader.text, reader.at, reader.at + 2);
    if (pair === "") throw badPattern("a set is not closed");
    const ends = pair[0] === "]";
    if (ends || pair === "--" || pair === "&&") {
      if (operator !== "" || !ends) {
        if (count !== 1 || (!ends && operator !== "" && operator !== pair)) {
          throw badPattern("put what is on each side of " + (ends ? operator : pair) + " into brackets of its own");
        }
        const operand = union(members, others);
        left = left === null ? operand : "(?" + (operator === "--" ? "!" : "=") + operand + ")" + left;
        members = others = "";
      }
      reader.at += ends ? 1 : 2;
      if (!ends) {
        operator = pair;
        count = 0;
        continue;
      }
      if (left === null && others === "") return "[" + (negated ? "^" : "") + members + "]";
      const text = left ?? union(members, others);
      return negated ? "(?:(?!" + text + ")[^])" : "(?:" + text + ")";
    }
    count += 1;
    const token = nextToken(reader);
    const kind = token[0] === "\\" ? token[1] : "";
    if (token === "[") others += "|" + setText(reader, flags);
    else if (kind === "q") throw badPattern(token + " is not supported here; write (?:...|...) and the flag u");
    else if (kind === "P" && (flags & IGNORES_CASE) !== 0) others += "|" + bareProperty(token, flags);
    else if (kind !== "" && stringIndexOf("dDsSwWpP", kind) >= 0) {
      if (kind === "p" || kind === "P") checkProperty(token);
      members += token;
    } else {
      if (pair[0] === pair[1] && stringIndexOf(DOUBLED, pair[0]) >= 0) {
        throw badPattern(pair + " in a set of the flag v needs a backslash");
      }
      members += setCharacter(token);
      if (reader.text[reader.at] !== "-" || reader.text[reader.at + 1] === "-") continue;
      reader.at += 1;
      count += 1; // a range is no operand
      members += "-" + setCharacter(nextToken(reader));
    }
  }
}

// `flags`: a bit for each letter. The glue calls this for patterns with the flag `v`, and for those with `i` and `u`.
function translated(pattern, flags) {
  const sets = (flags & HAS_SETS) !== 0;
  if (stringIndexOf(pattern, "\\") < 0 && (!sets || stringIndexOf(pattern, "[") < 0)) return pattern;
  const reader = { __proto__: null, text: pattern, at: 0 };
  patternText = pattern;
  let text = "";
  let bracketed = false;
  while (reader.at < pattern.length) {
    const token = nextToken(reader);
    const property = token[0] === "\\" && (token[1] === "p" || token[1] === "P");
    if (property && sets) checkProperty(token);
    if (sets && token === "[") text += setText(reader, flags);
    else if (property && !bracketed) text += bareProperty(token, flags);
    else {
      text += token;
      if (token === "[") bracketed = true;
      else if (token === "]") bracketed = false;
    }
  }
  return text;
}

setFunction(12, translated);
