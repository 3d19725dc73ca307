//! The settings of the keys service: those of `redis.conf`, by its names with `_` for `-`. A file in the form of `redis.conf` can be
//! imported; what is set elsewhere counts before it.

use std::collections::BTreeMap;
use std::path::Path;

use savanna_keys::config::Config as KeysConfig;
use savanna_keys::config::file::{Line, kept_name, lines};

use super::{ConfigError, SETTINGS, Source, Sourced};

/// What the keys of these settings begin with.
const PREFIX: &str = "keys.";

/// Settings of the node, not of `redis.conf`.
const OF_THE_NODE: [&str; 8] = [
    "keys.port",
    "keys.cluster_port",
    "keys.spread",
    "keys.moves",
    "keys.groups",
    "keys.threads",
    "keys.config",
    "keys.shutdown",
];

/// The setting that names the file to be imported.
pub(super) const IMPORT: &str = "keys.config";

/// The setting whose value nobody is shown.
pub(super) const SECRET: &str = "keys.requirepass";

/// The name in `redis.conf` of a setting.
fn redis_name(key: &str) -> Option<String> {
    let name = key.strip_prefix(PREFIX).filter(|_| !OF_THE_NODE.contains(&key))?;
    Some(name.replace('_', "-"))
}

/// The setting of a name in `redis.conf`; none for those without effect.
fn key_of(name: &str) -> Option<&'static str> {
    let name = kept_name(name);
    SETTINGS.iter().map(|spec| spec.key).find(|key| redis_name(key).as_ref() == Some(&name))
}

/// All values, checked.
///
/// # Errors
/// A value that its setting does not take.
pub(super) fn settings(values: &BTreeMap<&'static str, Sourced>) -> Result<KeysConfig, ConfigError> {
    let mut config = KeysConfig::default();
    for (key, Sourced { value, source }) in values {
        let Some(name) = redis_name(key) else { continue };
        config.set_at_start(name.as_bytes(), value.as_bytes()).map_err(|reason| ConfigError::Keys {
            place: source.clone(),
            setting: (*key).to_owned(),
            reason,
        })?;
    }
    Ok(config)
}

/// The settings in a file in the form of `redis.conf`, which `place` names.
///
/// # Errors
/// The file cannot be read, or a line sets nothing.
pub(super) fn import(path: &Path, place: &Source) -> Result<Vec<(&'static str, Sourced)>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Import {
        place: place.clone(),
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    parse(path, &text)
}

/// The settings in a text: a name and a value per line.
fn parse(path: &Path, text: &str) -> Result<Vec<(&'static str, Sourced)>, ConfigError> {
    let mut found: Vec<(&'static str, Sourced)> = Vec::new();
    for Line { number, name, value } in lines(text) {
        let source = Source::File { path: path.to_owned(), line: number };
        let refused = |reason| ConfigError::Keys { place: source.clone(), setting: name.to_owned(), reason };
        let Some(key) = key_of(name) else {
            // Those that tune how Redis stores things are skipped.
            if KeysConfig::has_effect(name.as_bytes()) {
                let reason = "Savanna does not have this setting of Redis; remove the line (`savanna config show` lists all settings)";
                return Err(refused(reason.to_owned()));
            }
            continue;
        };
        KeysConfig::default().set_at_start(name.as_bytes(), value.as_bytes()).map_err(refused)?;
        let before = found.iter().position(|(other, _)| *other == key).map(|at| found.swap_remove(at).1.value);
        let value = match before {
            // Each line may be about another class of clients.
            Some(before) if key == "keys.client_output_buffer_limit" => format!("{before} {value}"),
            _ => value.to_owned(),
        };
        found.push((key, Sourced { value, source }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use savanna_keys::config::{Secret, Sync};

    use super::*;
    use crate::config::{Config, Sources};

    fn load(redis_conf: &str, toml: &str) -> Result<Config, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.conf");
        std::fs::write(&path, redis_conf).unwrap();
        Config::load(&Sources::none().text("savanna.toml", toml).flag(IMPORT, path.to_str().unwrap(), "--set"))
    }

    fn shown(config: &Config, key: &str) -> (String, String) {
        let setting = config.settings().into_iter().find(|setting| setting.key == key).unwrap();
        let (_, source) = setting.source.rsplit_once('/').unwrap_or(("", &setting.source));
        (setting.value, source.to_owned())
    }

    #[test]
    fn the_table_has_every_setting_of_keys_with_its_default() {
        let default = KeysConfig::default();
        let mut expected: Vec<(String, String)> = Vec::new();
        for (name, value) in default.matching(b"*") {
            let is_set_at_start = KeysConfig::default().set_at_start(name.as_bytes(), &value).is_ok();
            if is_set_at_start && KeysConfig::has_effect(name.as_bytes()) && name != "busy-reply-threshold" {
                expected.push((name.to_owned(), String::from_utf8(value).unwrap()));
            }
        }
        let of_keys = SETTINGS.iter().filter_map(|spec| Some((redis_name(spec.key)?, spec.default.to_owned())));
        let mut found: Vec<(String, String)> = of_keys.collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_redis_conf_is_imported() {
        let text = "# durable\nappendfsync always\n\n  MaxMemory   2mb\nrequirepass \"open sesame\"\nsave 900 1\n\
                    busy-reply-threshold 70\nclient-output-buffer-limit normal 1mb 0 0\n\
                    client-output-buffer-limit pubsub 2mb 0 0\n";
        let config = load(text, "").unwrap();
        let keys = &config.node().keys;
        assert_eq!((keys.sync, keys.memory_max, keys.busy_millis), (Sync::Always, 2 << 20, 70));
        assert_eq!(keys.password.as_ref().map(Secret::reveal), Some(&b"open sesame"[..]));
        assert_eq!((keys.output_normal.hard, keys.output_listening.hard), (1 << 20, 2 << 20));
        assert_eq!(shown(&config, "keys.maxmemory"), ("2mb".to_owned(), "keys.conf:4".to_owned()));
        assert_eq!(shown(&config, "keys.timeout"), ("0".to_owned(), "default".to_owned()));
    }

    #[test]
    fn what_is_set_elsewhere_counts_before_a_redis_conf() {
        let config = load("maxmemory 2mb\ntimeout 7\n", "[keys]\nmaxmemory = '3mb'\nmaxclients = 5\n").unwrap();
        let keys = &config.node().keys;
        assert_eq!((keys.memory_max, keys.idle_seconds_max, keys.clients_max), (3 << 20, 7, 5));
        assert_eq!(shown(&config, "keys.maxmemory").1, "savanna.toml:2");
    }

    #[test]
    fn a_wrong_setting_is_refused_with_its_place() {
        let text = load("appendfsync always\nmaxmemory lots\n", "").unwrap_err().to_string();
        assert!(text.ends_with("keys.conf:2: maxmemory: argument must be a memory value"), "{text}");
        let text = load("save 900 1\nbind 127.0.0.1\n", "").unwrap_err().to_string();
        assert!(text.contains("keys.conf:2: bind: Savanna does not have this setting of Redis"), "{text}");
        let text = load("", "[keys]\nmaxmemory = 'lots'\n").unwrap_err().to_string();
        assert_eq!(text, "savanna.toml:2: keys.maxmemory: argument must be a memory value");
        let missing = Sources::none().flag(IMPORT, "/nowhere/keys.conf", "--set");
        let text = Config::load(&missing).unwrap_err().to_string();
        assert!(text.starts_with("flag --set: keys.config names /nowhere/keys.conf, which cannot be read: "), "{text}");
    }

    #[test]
    fn a_password_is_not_shown() {
        let long = "x".repeat(600);
        for toml in ["[keys]\nrequirepass = 'hunter2'\n", ""] {
            let config = load("requirepass hunter2\n", toml).unwrap();
            assert_eq!(config.node().keys.password.as_ref().map(Secret::reveal), Some(&b"hunter2"[..]));
            assert_eq!(shown(&config, SECRET).0, "(hidden)");
            assert!(!format!("{config:?}").contains("hunter2"));
            let error = load(&format!("requirepass {long}"), toml).unwrap_err();
            assert!(!error.to_string().contains(&long), "{error}");
        }
    }
}
