//! Help and errors as text, compared with files. `UPDATE_SNAPSHOTS=1 cargo test -p savanna` writes them anew; the diff
//! is for people to read.

use std::path::Path;

use crate::process::{run, savanna};

fn assert_snapshot(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(expected == text, "{} differs; it should be\n{expected}\nand is\n{text}", file.display());
}

#[test]
fn help_of_every_command() {
    let commands: &[&[&str]] = &[
        &[],
        &["dev"],
        &["node"],
        &["nodes"],
        &["shards"],
        &["move"],
        &["moves"],
        &["drain"],
        &["status"],
        &["metrics"],
        &["config"],
        &["config", "show"],
        &["sql"],
        &["nexmark"],
        &["nexmark", "run"],
        &["nexmark", "generate"],
        &["nexmark", "demo"],
        &["queries"],
        &["queries", "list"],
        &["queries", "show"],
        &["queries", "stop"],
        &["queries", "resume"],
        &["queries", "drop"],
        &["keys"],
        &["keys", "export"],
        &["keys", "import"],
        &["files"],
        &["files", "ls"],
        &["files", "tree"],
        &["files", "du"],
        &["files", "stat"],
        &["files", "top"],
        &["functions"],
        &["functions", "list"],
        &["functions", "invoke"],
        &["functions", "logs"],
        &["functions", "top"],
        &["functions", "delete"],
        &["tenants"],
        &["tenants", "list"],
        &["tenants", "top"],
        &["tenants", "create"],
        &["tenants", "drop"],
        &["tenants", "backup"],
        &["tenants", "restore"],
    ];
    for command in commands {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let ran = run(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{command:?}");
        let name = if command.is_empty() { "savanna".to_owned() } else { command.join("-") };
        assert_snapshot(&format!("help-{name}"), &ran.stdout);
    }
}

#[test]
fn errors_of_the_command_line_and_the_configuration() {
    let cases: [(&str, &[&str]); 8] = [
        ("no-such-command", &["sqll"]),
        ("no-such-query", &["nexmark", "run", "--query", "q99"]),
        ("no-such-service", &["dev", "--only", "kyes"]),
        ("no-such-setting", &["config", "show", "--set", "http.prot=1"]),
        ("wrong-port", &["dev", "--http-port", "eighty"]),
        ("wrong-url", &["status", "--url", "ftp://example"]),
        ("no-such-config", &["config", "show", "--config", "/nonexistent/savanna.toml"]),
        ("wrong-id", &["queries", "stop", "../tables"]),
    ];
    for (name, arguments) in cases {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{name}: {}", ran.stderr);
        assert_snapshot(&format!("error-{name}"), &ran.stderr);
    }
}

#[test]
fn the_configuration_shows_values_and_sources() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("savanna.toml"), "[http]\nport = 1\nmax_body = \"2MiB\"\n").unwrap();
    let mut command = savanna(&["config", "show", "--set", "log=warn"]);
    let output = command.current_dir(directory.path()).env("SAVANNA_HTTP_PORT", "2").output().unwrap();
    assert_snapshot("config-show", &String::from_utf8(output.stdout).unwrap());
}
