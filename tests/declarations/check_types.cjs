// Reads lines of {files: {name: text}, together} on stdin and answers each with a line of {name: [[line, message], ...]}:
// what `tsc --strict --lib es2023` says. `together` compiles the files as one program, else each is a module of its own.
// {comments: {name: text}} is answered with {name: {property: [JSDoc, ...]}} instead, as the compiler finds them.
const readline = require("readline");
const ts = require(process.env.TYPESCRIPT_DIR);
const libraries = new Map();

function problems({ files, together }) {
  const options = {
    strict: true,
    noEmit: true,
    target: ts.ScriptTarget.ES2023,
    lib: ["lib.es2023.d.ts"],
    types: [],
    moduleDetection: together ? ts.ModuleDetectionKind.Legacy : ts.ModuleDetectionKind.Force,
  };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (name, ...rest) => {
    if (files[name] !== undefined) return ts.createSourceFile(name, files[name], rest[0], true);
    if (!libraries.has(name)) libraries.set(name, getSourceFile(name, ...rest));
    return libraries.get(name);
  };
  host.fileExists = (name) => files[name] !== undefined || fileExists(name);
  host.readFile = (name) => files[name] ?? readFile(name);
  const program = ts.createProgram(Object.keys(files), options, host);
  const found = {};
  for (const name of Object.keys(files)) {
    const file = program.getSourceFile(name);
    found[name] = [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      (diagnostic) => [
        file.getLineAndCharacterOfPosition(diagnostic.start).line,
        ts.flattenDiagnosticMessageText(diagnostic.messageText, " "),
      ],
    );
  }
  return found;
}

function comments(files) {
  const found = {};
  for (const name of Object.keys(files)) {
    const file = ts.createSourceFile(name, files[name], ts.ScriptTarget.ES2023, true);
    const properties = Object.create(null);
    const visit = (node) => {
      if (ts.isPropertySignature(node)) {
        const texts = ts.getJSDocCommentsAndTags(node).map((comment) => comment.getText(file));
        (properties[node.name.text] ??= []).push(texts.join("\n"));
      }
      ts.forEachChild(node, visit);
    };
    visit(file);
    found[name] = properties;
  }
  return found;
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  process.stdout.write(JSON.stringify(request.comments ? comments(request.comments) : problems(request)) + "\n");
});
