// Saved programs: `programs.<name>(input)`. The host answers a call with the text of the program, unless this guest has it
// already, and with its checked input. The program runs here, so that a snapshot of the guest has all of it. It gets a
// copy of its input, and its caller a copy of its result, as if they were in different guests. The host hears of its end.
let savedPrograms = []; // [[name, id]]
const mains = new NativeMap(); // functions by the names of programs
const { evaluate } = natives;

// Return `programs` for a program. `chain`: the names of the programs around its calls, as members of a JSON list.
function programsFor(chain) {
  const programs = objectCreate(null);
  for (let i = 0; i < savedPrograms.length; i++) {
    member(programs, savedPrograms[i][0], programCaller(savedPrograms[i][0], savedPrograms[i][1], chain));
  }
  return freeze(programs);
}

function programCaller(name, id, chain) {
  const target = jsonStringify(id);
  const within = chain === "" ? "" : ',"chain":[' + chain + "]";
  const program = { __proto__: null, name, chain: (chain === "" ? "" : chain + ",") + jsonStringify(name) };
  const fields = (args) =>
    callFields(target, args) + within + (mapGet(mains, name) === undefined ? "" : ',"known":true');
  const call = (...args) => requestCall("call", () => fields(args), call, false, program);
  return exposed(name, call);
}

// begun: { file, input, code: undefined | string, nested: true if its text uses `programs` }
async function runProgram(waiting, id, begun) {
  const { program, resolve } = waiting;
  const ended = ',"target":' + id + ',"name":' + jsonStringify(program.name);
  let result;
  try {
    let main = mapGet(mains, program.name);
    if (main === undefined) {
      main = evaluate("(async function (programs) {\n\n" + begun.code + "\n})", begun.file);
      mapSet(mains, program.name, main);
    }
    const made = apply(main, undefined, [begun.nested ? programsFor(program.chain) : undefined]);
    defineProperty(made, "constructor", hidden(NativePromise));
    const text = toWholeJsonText(await apply(await made, undefined, [begun.input]));
    result = parseExactly(text);
    post("program_end", ended + ',"bytes":' + text.length);
  } catch (error) {
    let failed;
    try {
      failed = describe(error);
    } catch (fault) {
      failed = describe(fault); // reading the error has used up the memory
    }
    // The host answers with the error for the caller, since only the host knows positions in the file.
    const end = post("program_end", ended + ',"error":' + failed);
    const { reject, site } = waiting;
    mapSet(pending, end, { __proto__: null, resolve, reject, site, boxed: false, call: false, timer: null, app: null, program: null });
    return;
  }
  resolve(result);
}

function installPrograms(list) {
  if (list === undefined) return;
  savedPrograms = list;
  defineGlobal("programs", programsFor(""), { __proto__: null, fixed: true });
}
