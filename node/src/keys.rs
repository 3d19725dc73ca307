//! The keys service: an engine and its face in threads of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use savanna_epoch::OwnerEpoch;
use savanna_journal::Options as JournalOptions;
use savanna_keys::config::Config as KeysConfig;
use savanna_keys_host::HostOptions;
use savanna_ownership::guard::LeaseGuard;
use savanna_resp::{Server, ServerError, ServerOptions};

use crate::config::{NodeConfig, threads_or_cores};
use crate::data_dir::{create_private, high_water};
use crate::places::clients_max;

/// Why the keys service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// The file with its settings cannot be read.
    #[error("keys.config names {path}, which cannot be read: {source}; check the path")]
    Read { path: String, source: std::io::Error },
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory { path: PathBuf, source: std::io::Error },
    /// A line of that file is wrong.
    #[error("{path}:{line}: {setting}: {reason}")]
    Setting { path: String, line: usize, setting: String, reason: String },
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Reads the log in the data directory and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, epoch: OwnerEpoch, lease: LeaseGuard) -> Result<Server, KeysError> {
    let directory = config.data_dir.join("keys");
    create_private(&directory).map_err(|source| KeysError::Directory { path: directory.clone(), source })?;
    let log = JournalOptions::dir(directory);
    let mut settings = config.keys_config.as_deref().map_or_else(|| Ok(KeysConfig::default()), read_settings)?;
    settings.clients_max = clients_max(config, "keys", settings.clients_max);
    let host = HostOptions {
        threads: threads_or_cores(config.keys_threads),
        config: settings,
        log: Some((log.high_water(high_water(&config.data_dir, "keys")), epoch)),
        lease: Some(lease),
        seed: rand::random(),
    };
    Ok(Server::start(ServerOptions { address: SocketAddr::new(config.address, config.keys_port), host })?)
}

/// Settings in the form of `redis.conf`: a name and a value per line.
fn read_settings(path: &Path) -> Result<KeysConfig, KeysError> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| KeysError::Read { path: name(), source })?;
    let mut settings = KeysConfig::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim().trim_matches('"');
        settings.set_at_start(key.as_bytes(), value.as_bytes()).map_err(|reason| KeysError::Setting {
            path: name(),
            line: number,
            // Not its value: that may be a password.
            setting: key.to_owned(),
            reason,
        })?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use savanna_keys::config::Secret;

    use super::*;

    fn settings(text: &str) -> Result<KeysConfig, KeysError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.conf");
        std::fs::write(&path, text).unwrap();
        read_settings(&path)
    }

    #[test]
    fn settings_have_the_form_of_redis_conf() {
        let read =
            settings("# durable\nappendfsync always\n\n  maxmemory   2mb\nrequirepass \"open sesame\"\n").unwrap();
        assert_eq!(read.sync, savanna_keys::config::Sync::Always);
        assert_eq!((read.memory_max, read.password.as_ref().map(Secret::reveal)), (2 << 20, Some(&b"open sesame"[..])));
    }

    #[test]
    fn a_wrong_setting_is_refused_with_its_line() {
        let text = settings("appendfsync always\nmaxmemory lots\n").unwrap_err().to_string();
        assert!(text.ends_with("keys.conf:2: maxmemory: argument must be a memory value"), "{text}");
    }
}
