//! Handlers of JavaScript, if this machine has Node.js.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Host;

/// The runtime of this machine's Node.js, if it has one that is offered.
fn runtime() -> Option<String> {
    let told = Command::new("node").arg("--version").output().ok()?;
    let version = String::from_utf8(told.stdout).ok()?;
    let runtime = format!("nodejs{}.x", version.trim().strip_prefix('v')?.split('.').next()?);
    savanna_functions_host::catalog::RuntimeKind::of(&runtime).map(|_| runtime)
}

/// A host with functions of one file each, by their names; nothing without Node.js.
fn host_of(directory: &tempfile::TempDir, sources: &[(&str, &str, &str, Value)]) -> Option<Host> {
    let Some(runtime) = runtime() else {
        eprintln!("no Node.js of a version that is offered is here: nothing is tested");
        return None;
    };
    let host = Host::open(directory.path(), 1);
    for (name, file, source, settings) in sources {
        host.make(name, &runtime, &[(file, 0o100_644, source.as_bytes())], settings);
    }
    Some(host)
}

#[test]
fn a_handler_of_javascript_gets_what_its_client_sends_and_answers() {
    let module = "export const handler = async (event, context) => {
        console.log('got', event);
        return { event, name: context.functionName, left: context.getRemainingTimeInMillis() };
    };";
    let script = "let n = 0; exports.handler = async () => ({ n: ++n, file: require('path').basename(__filename) });";
    let called_back =
        "exports.handler = (event, context, callback) => { setTimeout(() => callback(null, event + 1), 10); };";
    let nested = "exports.api = { v1: { get: async () => 'got' } };";
    let nothing = "exports.handler = () => {};";
    let both = "exports.handler = async (event, context, callback) => { callback(null, 'called back'); };";
    let done = "exports.handler = (event, context) => { setTimeout(() => {}, 60000); context.succeed('done'); };";
    let directory = tempfile::tempdir().unwrap();
    let sources = [
        ("module", "main.mjs", module, json!({})),
        ("script", "main.js", script, json!({})),
        ("called-back", "main.js", called_back, json!({})),
        ("nested", "src/main.js", nested, json!({ "Handler": "src/main.api.v1.get" })),
        ("nothing", "main.js", nothing, json!({})),
        ("both", "main.js", both, json!({})),
        ("done", "main.js", done, json!({})),
    ];
    let Some(host) = host_of(&directory, &sources) else { return };
    let answer = host.answer("module", &json!({ "a": [1, "ä"] }));
    assert_eq!((&answer["event"], &answer["name"]), (&json!({ "a": [1, "ä"] }), &json!("module")));
    assert!((1..=20_000).contains(&answer["left"].as_u64().unwrap()), "{answer}");
    assert!(host.log("module").contains("\tINFO\tgot { a: [ 1, 'ä' ] }\n"), "{}", host.log("module"));
    assert_eq!(host.answer("script", &json!({})), json!({ "n": 1, "file": "main.js" }));
    assert_eq!(host.answer("script", &json!({}))["n"], 2, "the instance is warm");
    assert_eq!((host.answer("called-back", &json!(4)), host.answer("called-back", &json!(5))), (json!(5), json!(6)));
    assert_eq!(host.answer("nested", &json!({})), json!("got"));
    assert_eq!(
        (host.answer("both", &json!({})), host.answer("both", &json!({}))),
        (json!("called back"), json!("called back"))
    );
    assert_eq!(host.answer("done", &json!({})), json!("done"), "nothing is waited for");
    assert_eq!((host.answer("nothing", &json!({})), host.answer("nothing", &json!({}))), (Value::Null, Value::Null));
    host.close();
}

#[test]
fn what_goes_wrong_in_javascript_has_lambdas_name() {
    let directory = tempfile::tempdir().unwrap();
    let eats =
        "exports.handler = async () => { const all = []; for (;;) all.push(new Array(1 << 16).fill(Math.random())); };";
    let sources = [
        ("raises", "main.js", "exports.handler = async () => { throw new TypeError('no'); };", json!({})),
        (
            "refuses",
            "main.js",
            "exports.handler = (event, context, callback) => callback(new RangeError('no'));",
            json!({}),
        ),
        ("throws-text", "main.js", "exports.handler = async () => { throw 'no'; };", json!({})),
        ("imports", "main.js", "require('nothing-of-that-name');", json!({})),
        ("absent", "other.js", "exports.handler = async () => 1;", json!({})),
        ("lacks", "main.js", "exports.other = 1;", json!({})),
        ("malformed", "main.js", "exports.handler = (", json!({})),
        ("exits", "main.js", "exports.handler = async () => process.exit(3);", json!({})),
        (
            "rejects",
            "main.js",
            "exports.handler = () => { Promise.reject(new Error('no')); setTimeout(() => {}, 1000); };",
            json!({}),
        ),
        (
            "sleeps",
            "main.js",
            "exports.handler = () => new Promise((end) => setTimeout(end, 60000));",
            json!({ "Timeout": 1 }),
        ),
        ("eats", "main.js", eats, json!({ "MemorySize": 128 })),
        ("forgets", "main.js", "exports.handler = async () => new Promise(() => {});", json!({})),
        (
            "tells-much",
            "main.js",
            "exports.handler = async () => { throw new Error('x'.repeat(1 << 20)); };",
            json!({}),
        ),
        (
            "foreign",
            "main.js",
            "exports.handler = async () => { const e = new Error('no'); e.name = 'Ä'; throw e; };",
            json!({}),
        ),
        (
            "refuses-and-waits",
            "main.js",
            "exports.handler = (e, c, callback) => { setTimeout(() => {}, 60000); callback('no'); };",
            json!({}),
        ),
        ("cyclic", "main.js", "exports.handler = async () => { const a = {}; a.a = a; return a; };", json!({})),
    ];
    let Some(host) = host_of(&directory, &sources) else { return };
    for (name, kind) in [
        ("raises", "TypeError"),
        ("refuses", "RangeError"),
        ("throws-text", "string"),
        ("imports", "Runtime.ImportModuleError"),
        ("absent", "Runtime.ImportModuleError"),
        ("lacks", "Runtime.HandlerNotFound"),
        ("malformed", "Runtime.UserCodeSyntaxError"),
        ("exits", "Runtime.ExitError"),
        ("rejects", "Runtime.UnhandledPromiseRejection"),
        ("sleeps", "Sandbox.Timedout"),
        ("eats", "Runtime.ExitError"),
        ("forgets", "Runtime.NodeJsExit"),
        ("tells-much", "Error"),
        ("foreign", "Ä"),
        ("refuses-and-waits", "string"),
        ("cyclic", "TypeError"),
    ] {
        let (succeeded, answer) = host.call(name, &json!({}));
        assert!(!succeeded && answer["errorType"] == kind, "{name}: {answer:#} {}", host.log(name));
    }
    host.close();
}

#[test]
fn a_runtime_that_no_node_of_this_machine_is_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(directory.path(), 1);
    let has = runtime();
    let other = ["nodejs18.x", "nodejs26.x"].into_iter().find(|other| has.as_deref() != Some(other)).unwrap();
    if let Err(refusal) = host.runtime.block_on(host.functions.check_runtime(other)) {
        assert!(refusal.to_string().contains(other), "{refusal}");
    }
    assert!(
        ["nodejs19.x", "nodejs16.x", "nodejs22", "nodejs"]
            .iter()
            .all(|name| { savanna_functions_host::catalog::RuntimeKind::of(name).is_none() })
    );
    host.close();
}
