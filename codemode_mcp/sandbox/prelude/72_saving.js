// `save_program`, by which a program proposes its own text. `start` defines it in programs that name it. The text comes
// with the request, so that it survives a suspension.
const SAVING_OPTIONS = ["description", "input"];
const MAX_SCHEMA = 64 * 1024;

// saving: { language, source }
function defineSaving(saving) {
  const own = ',"language":' + jsonStringify(saving.language) + ',"source":' + jsonStringify(saving.source);
  defineGlobal("save_program", exposed("save_program", (name, opts) =>
    request("save", () => ',"name":' + textArgument("save_program", "a name", name) + savingFields(opts) + own)));
}

function savingFields(opts) {
  if (opts === null || typeof opts !== "object") {
    throw new NativeTypeError('save_program takes a name and an object: save_program("weeklyReport", { description: "...", input: {...} })');
  }
  const given = objectKeys(opts);
  for (let i = 0; i < given.length && i < 100; i++) {
    if (given[i] !== "description" && given[i] !== "input") {
      throw new NativeTypeError("save_program has no option " + clip(given[i], 100) + "; there is " + SAVING_OPTIONS[0] + " and " + SAVING_OPTIONS[1]);
    }
  }
  const { description, input } = opts;
  if (typeof description !== "string") throw new NativeTypeError("the option description is a string that says what the program does");
  let text = ',"description":' + jsonStringify(clip(description, 4000));
  if (input !== undefined && input !== null) {
    const schema = typeof input === "object" && !isArray(input) ? argumentJson(input, "the option input") : undefined;
    if (schema === undefined || schema.length > MAX_SCHEMA) {
      throw new NativeTypeError("the option input is a JSON Schema of an object, of at most " + MAX_SCHEMA + " characters");
    }
    text += ',"input":' + quoted(schema);
  }
  return text;
}
