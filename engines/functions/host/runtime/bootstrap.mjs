// Runs a handler of JavaScript behind Lambda's Runtime API.
import { existsSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import util from "node:util";

const [HOST, PORT] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
const PATH = "/2018-06-01/runtime/";
const ROOT = process.env.LAMBDA_TASK_ROOT;
// One connection for all requests. It keeps no process alive that has nothing else to do.
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

function ask(method, what, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "Content-Length": Buffer.byteLength(body) };
    const options = { host: HOST, port: PORT, agent, method, path: PATH + what, headers: { ...headers, ...length } };
    const request = http.request(options, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString() }));
      answer.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

// Lambda's name of a mistake.
class Mistake extends Error {
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

// So much of an error is told, in characters of its message and of its trace: the host takes no long ones.
const TOLD_MAX = 16384;

// An error, or whatever was thrown, as Lambda shows it.
function described(error) {
  if (!(error instanceof Error) && !util.types.isNativeError(error)) {
    return { errorType: typeof error, errorMessage: String(error).slice(0, TOLD_MAX), trace: [] };
  }
  const trace = String(error.stack ?? "").slice(0, TOLD_MAX).split("\n");
  return { errorType: String(error.name).slice(0, 256), errorMessage: String(error.message).slice(0, TOLD_MAX), trace };
}

// A header has no other letters.
const headerOf = (told) => ({ "Lambda-Runtime-Function-Error-Type": told.errorType.replaceAll(/[^\x20-\x7e]/g, "?") });

// Lines of console.* say when, of which invocation, and how serious.
let request;
for (const [method, level] of [["log", "INFO"], ["info", "INFO"], ["debug", "DEBUG"], ["trace", "TRACE"], ["warn", "WARN"], ["error", "ERROR"]]) {
  console[method] = (...words) => {
    const line = util.format(...words).replaceAll("\n", "\r");
    process.stdout.write(`${new Date().toISOString()}\t${request ?? "undefined"}\t${level}\t${line}\n`);
  };
}

// What a module of the function has under its own or a package's rules.
async function load(module) {
  const at = path.resolve(ROOT, module);
  const file = ["", ".js", ".mjs", ".cjs"].map((end) => at + end).find((file) => path.extname(file) && existsSync(file));
  try {
    if (file !== undefined) return await import(pathToFileURL(file).href);
    return createRequire(path.join(ROOT, "_"))(module.startsWith(".") ? at : module);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Mistake("Runtime.UserCodeSyntaxError", String(error.stack ?? error));
    if (["MODULE_NOT_FOUND", "ERR_MODULE_NOT_FOUND"].includes(error?.code)) {
      throw new Mistake("Runtime.ImportModuleError", `Error: ${error.message}`);
    }
    throw error;
  }
}

// The function that `folder/module.object.function` names.
async function handlerOf(name) {
  const [, folder, module, rest] = /^(.*\/)?([^./]+)\.(.+)$/.exec(name) ?? [];
  if (rest === undefined) throw new Mistake("Runtime.MalformedHandlerName", "Bad handler");
  const loaded = await load((folder ?? "./") + module);
  const steps = rest.split(".");
  const within = (found) => steps.reduce((found, step) => found?.[step], found);
  const handler = within(loaded) ?? within(loaded.default);
  if (handler === undefined) throw new Mistake("Runtime.HandlerNotFound", `${name} is undefined or not exported`);
  if (typeof handler !== "function") throw new Mistake("Runtime.HandlerNotFound", `${name} is not a function`);
  return handler;
}

// What a handler knows of its invocation; `done` takes an error and an answer.
function contextOf(headers, done) {
  const deadline = Number(headers["lambda-runtime-deadline-ms"]);
  const client = headers["lambda-runtime-client-context"];
  return {
    callbackWaitsForEmptyEventLoop: true,
    awsRequestId: headers["lambda-runtime-aws-request-id"],
    invokedFunctionArn: headers["lambda-runtime-invoked-function-arn"],
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: process.env.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: process.env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: process.env.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: process.env.AWS_LAMBDA_LOG_STREAM_NAME,
    clientContext: client ? JSON.parse(client) : undefined,
    identity: undefined,
    getRemainingTimeInMillis: () => Math.max(deadline - Date.now(), 0),
    succeed: (answer) => done(null, answer),
    fail: (error) => done(error ?? "handled"),
    done,
  };
}

// What is done when nothing else is left to be done.
let whenIdle;
process.on("beforeExit", () => {
  const idle = whenIdle;
  whenIdle = undefined;
  idle?.();
});

// Calls a handler. The first of these ends it: its promise, `context.done` and the like, an error that is called back; or an answer that is called back, when
// nothing else is left to be done, unless `context.callbackWaitsForEmptyEventLoop` was set to false before.
function called(handler, event, headers) {
  return new Promise((resolve, reject) => {
    let isOver = false;
    const once = (end) => (...words) => {
      if (isOver) return;
      isOver = true;
      whenIdle = undefined;
      end(...words);
    };
    const done = once((error, answer) => (error == null ? resolve(answer) : reject(error)));
    const context = contextOf(headers, done);
    const callback = once((error, answer) => {
      if (error != null) reject(error);
      else if (context.callbackWaitsForEmptyEventLoop) whenIdle = () => resolve(answer);
      else resolve(answer);
    });
    // Who calls nobody back has answered nothing, but for a promise that is never kept.
    whenIdle = once(() => {
      if (!util.types.isAsyncFunction(handler)) return resolve(null);
      reject(new Mistake("Runtime.NodeJsExit", "The function has nothing left to do, and its promise was neither kept nor broken"));
    });
    const given = handler(event, context, callback);
    if (typeof given?.then === "function") given.then((answer) => done(null, answer), (error) => done(error ?? "handled"));
  });
}

async function main() {
  let handler;
  try {
    handler = await handlerOf(process.env._HANDLER);
  } catch (error) {
    console.error("Uncaught Exception", error);
    await ask("POST", "init/error", JSON.stringify(described(error)), headerOf(described(error)));
    process.exit(1);
  }
  const dies = (name) => async (error) => {
    console.error(name, error);
    const told = name === "Uncaught Exception" ? described(error) : { ...described(error), errorType: "Runtime.UnhandledPromiseRejection" };
    if (request) {
      await ask("POST", `invocation/${request}/error`, JSON.stringify(told), headerOf(told)).catch(() => {});
    }
    process.exit(name === "Uncaught Exception" ? 129 : 128);
  };
  process.on("uncaughtException", dies("Uncaught Exception"));
  process.on("unhandledRejection", dies("Unhandled Promise Rejection"));
  for (;;) {
    request = undefined;
    const { status, headers, body } = await ask("GET", "invocation/next");
    request = headers["lambda-runtime-aws-request-id"];
    // The host has nothing for this instance: it is not an event.
    if (status !== 200 || !request) process.exit(1);
    process.env._X_AMZN_TRACE_ID = headers["lambda-runtime-trace-id"] ?? "";
    try {
      const answer = JSON.stringify((await called(handler, JSON.parse(body), headers)) ?? null);
      await ask("POST", `invocation/${request}/response`, answer ?? "null");
    } catch (error) {
      whenIdle = undefined;
      console.error("Invoke Error", error);
      await ask("POST", `invocation/${request}/error`, JSON.stringify(described(error)), headerOf(described(error)));
    }
  }
}

main();
