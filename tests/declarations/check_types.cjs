// Reads {files: {name: text}} on stdin and writes {name: [[line, message], ...]}: what `tsc --strict --lib es2023` says.
// `together` compiles the files as one program, else each is a module of its own.
const fs = require("fs");
const ts = require(process.env.TYPESCRIPT_DIR);
const { files, together } = JSON.parse(fs.readFileSync(0, "utf8"));
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
host.getSourceFile = (name, ...rest) =>
  files[name] === undefined ? getSourceFile(name, ...rest) : ts.createSourceFile(name, files[name], rest[0], true);
host.fileExists = (name) => files[name] !== undefined || fileExists(name);
host.readFile = (name) => files[name] ?? readFile(name);
const program = ts.createProgram(Object.keys(files), options, host);
const found = {};
for (const name of Object.keys(files)) {
  const file = program.getSourceFile(name);
  found[name] = [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map((diagnostic) => [
    file.getLineAndCharacterOfPosition(diagnostic.start).line,
    ts.flattenDiagnosticMessageText(diagnostic.messageText, " "),
  ]);
}
process.stdout.write(JSON.stringify(found));
