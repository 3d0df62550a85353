/**
 * The globals of a program in code mode. What `MCP` holds is in `mcp/index.d.ts` and `mcp/<server>.d.ts`.
 * Compile with `"lib": ["es2023"], "types": []`: the names below that browsers and Node have too are declared here.
 */

/** The result of an MCP tool. A tool's own failure (`isError`) is a result as well; `unwrap` throws it. */
interface McpToolResult<T = unknown> extends Record<string, unknown> { content?: unknown[]; structuredContent?: T; isError?: boolean }

/**
 * What the call of a tool rejects with. `data` says whether the request may have reached the tool, and whether sending it
 * again does no harm. `outcome` is there where the process that had sent it ended before its answer came: look whether the
 * tool has acted before calling it again.
 */
interface ToolCallError extends Error { code: string; data?: { tool: string; dispatched: boolean; repeatable: boolean; outcome?: "unknown" } }

/** What a call takes after its argument: `timeoutMs` of 1 to 600,000 milliseconds. */
interface McpCall { timeoutMs?: number }

interface McpApiHeader { kind: "mcp_api"; scope: "root" | "server" | "tool"; header: string; servers?: { identifier: string; serverName: string; toolCount: number; status: string }[]; tools?: { method: string; mcpTool: string; operation: "tool" | "resource" | "prompt"; effects: string; description: string }[]; schemas?: Record<string, unknown> }

/** A tool of a plugin, of the core, or of the connected client. */
interface ToolCatalogEntry {
  id: string;
  name: string;
  label?: string;
  description: string;
  source: "core" | "plugin" | "mcp" | "client";
  sourceName?: string;
}

/** A found MCP tool. */
interface ApiHit {
  server: string;
  /** For `API.read`: the declaration of this tool. */
  path: string;
  /** The function, such as `MCP.github.createIssue`. */
  call: string;
  signature: string;
  /** What a call does: `read-only`, `writes`, `not annotated` or `destructive`, then perhaps `idempotent`, `asks the user first`. */
  effects: string;
  description: string;
  /** Compares the hits of one answer; below 1 are near misses. */
  score: number;
  /** Set when the server cannot be reached now. */
  status?: "down";
  /** Set for a saved program if tools that it uses have changed since it was saved. */
  warning?: string;
}

/** A declaration file. */
interface ApiFile {
  path: string;
  /** The names of the tools of a server. Of very many, those with the same first word are counted. */
  tools?: string[];
  description?: string;
}

/** A found tool that is no MCP tool. */
interface ToolHit extends ToolCatalogEntry {
  signature: string;
  /** See `ApiHit`. */
  effects: string;
  /** Compares the hits of one answer; below 1 are near misses. */
  score: number;
}

/** What stands behind `--` in `codemode-mcp run FILE -- ARGS`. Empty in `exec`. */
declare const args: readonly string[];

/** Tools of plugins, core and client, without their schemas. MCP tools are not among them: see `API` and `MCP`. */
declare const ALL_TOOLS: readonly ToolCatalogEntry[];

/** `codemode-mcp types` writes what there is besides into `tools.d.ts`. */
interface Tools {
  /** Finds tools of `ALL_TOOLS` for what you need in plain words. */
  search(query: string, options?: { limit?: number } | number): Promise<ToolHit[]>;
  search(query: { query: string; limit?: number }): Promise<ToolHit[]>;
  /** JSON Schemas of what a tool takes and, where it says so, of its result, which is the plain value. */
  describe(id: string): Promise<ToolCatalogEntry & { parameters: unknown; returns?: unknown; signature: string }>;
  /** Calls a tool of `ALL_TOOLS` by its id. */
  call(id: string, input?: unknown, o?: McpCall): Promise<unknown>;
  /** Tools with an unambiguous name that is an identifier are functions here. */
  [safeToolName: string]: unknown;
}
declare const tools: Tools;

/** The declaration files of the MCP servers. Reading and searching them calls no tool. */
declare const API: {
  /** The files, or those whose paths begin with one of the prefixes, such as `mcp/github`. */
  list(...prefixes: (string | readonly string[])[]): Promise<{ files: ApiFile[] }>;
  /**
   * Files, or parts of them, as one text: `mcp/github.d.ts#createIssue,closeIssue`, `mcp/wiki.d.ts#resources`. A long file
   * without a part is replaced by its overview, and `#*` is all of it. Several paths are arguments or an array.
   */
  read(...paths: (string | readonly string[])[]): Promise<{ path: string; description: string; content: string; bytes: number }>;
  /** Finds MCP tools of all servers, or of one, for what you need in plain words. Servers that are down and unknown come after the hits. */
  search(query: string, options?: { limit?: number; server?: string } | number): Promise<ApiHit[]>;
  search(query: { query: string; limit?: number; server?: string }): Promise<ApiHit[]>;
};

/**
 * Saved programs by name; each is described in a file `programs/<name>.d.ts`. Absent if there are none. A call runs the
 * program with a copy of its input, and resolves to a copy of its result.
 */
declare namespace programs {}

/** MCP servers by identifier; each is described in a file of its own. */
declare namespace MCP {
  /** Return the header of the whole API. */
  function $api(): Promise<McpApiHeader>;
}

/** Namespaces by global name: `MCP`, and those of plugins, which `namespaces.d.ts` declares where there are some. */
declare const namespaces: Record<string, unknown>;

/** Appends to the output: a string as it is, anything else as JSON. */
declare function text(...values: unknown[]): void;
/** Appends JSON to the output. */
declare function json(value: unknown): void;
/**
 * Shows pictures: an MCP image block, or a result or resource that holds some. Audio and other binary content is passed on
 * as well. What is returned or printed has `[image/png, 34,567 bytes; ...]` in the place of such data.
 */
declare function image(value: unknown): void;
/**
 * Shows the user the app of a tool beside the answer, with this result. Takes the result as the call has returned it. The
 * tool must have an app, and the client must show MCP Apps. An answer has one app, the last one.
 */
declare function show(result: McpToolResult): void;
/** Ends this step of the program; `wait` resumes it here. */
declare function yield_control(reason?: string): Promise<void>;
/**
 * The structured content of a result, else the JSON or text of its content: of its only embedded resource if that has text
 * and stands beside nothing but texts. A note of the answer names what is left out. Throws if `isError` is set; the error has
 * the result in `result`, and its structured content in `data.structuredContent`. An integer beyond 2^53 is a bigint.
 */
declare function unwrap<T>(result: McpToolResult<T>): T;
/** Keeps a JSON value for later programs of the same owner. */
declare function store(key: string, value: unknown): void;
/** What `store` kept, or a truncated output's `ref` stands for; `undefined` if there is none. */
declare function load(key: string): Promise<unknown>;
/**
 * Proposes to save this program's own text as `programs.<name>(input)`. A person decides later; this call never waits for
 * that. `input` is the JSON Schema of the input, an object. Begin the program with `const input = {...}`, an example: the
 * saved program gets the input of its caller instead.
 */
declare function save_program(
  name: string,
  options: { description: string; input?: { [keyword: string]: unknown } },
): Promise<{ status: "proposed" | "saved" | "rejected"; name: string; digest: string; message: string; notes?: string[] }>;

interface Console {
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  dir(...values: unknown[]): void;
  table(...values: unknown[]): void;
  trace(...values: unknown[]): void;
  assert(condition?: unknown, ...values: unknown[]): void;
  group(...values: unknown[]): void;
  groupCollapsed(...values: unknown[]): void;
  groupEnd(): void;
  clear(): void;
  count(label?: string): void;
  countReset(label?: string): void;
  time(label?: string): void;
  timeLog(label?: string): void;
  timeEnd(label?: string): void;
}
/** Appends text to the output. */
declare const console: Console;

/** Timers of the host: they run while the program is suspended, and do not keep it from ending. */
declare function setTimeout<A extends unknown[]>(callback: (...values: A) => void, milliseconds?: number, ...values: A): number;
declare function clearTimeout(timer: number | undefined): void;
declare function setInterval<A extends unknown[]>(callback: (...values: A) => void, milliseconds?: number, ...values: A): number;
declare function clearInterval(timer: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;

declare class TextEncoder {
  readonly encoding: "utf-8";
  encode(text?: string): Uint8Array;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: ArrayBuffer | ArrayBufferView, options?: { stream?: boolean }): string;
}

declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
  hash: string;
  host: string;
  hostname: string;
  href: string;
  readonly origin: string;
  password: string;
  pathname: string;
  port: string;
  protocol: string;
  search: string;
  readonly searchParams: URLSearchParams;
  username: string;
  toJSON(): string;
  toString(): string;
}
declare class URLSearchParams {
  constructor(init?: string | Record<string, string> | Iterable<[string, string]> | URLSearchParams);
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  forEach(callback: (value: string, name: string, parameters: URLSearchParams) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
  toString(): string;
}

/** Text of Latin-1 characters to Base64. */
declare function btoa(text: string): string;
/** Base64 to text of Latin-1 characters. */
declare function atob(base64: string): string;

interface Crypto {
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
  getRandomValues<T extends Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array>(array: T): T;
}
declare const crypto: Crypto;

interface JSON {
  parse(text: string, reviver: (this: any, key: string, value: any, context: { source?: string }) => any): any;
  /** A value that `stringify` writes as this text. */
  rawJSON(text: string): object;
}

interface Performance {
  /** Milliseconds since the program started. */
  now(): number;
}
declare const performance: Performance;
