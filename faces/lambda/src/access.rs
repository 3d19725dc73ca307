//! Who may ask.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use savanna_functions_host::{Refusal, RefusalKind};

use crate::signature;

/// A key that requests are signed with, as SDKs have it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name, which requests say.
    pub id: String,
    /// What they do not say.
    pub secret: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a file has no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("{path}: {source}; check the path and the permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// It has something else.
    #[error(
        "{path}: expected one line with a key's name and its secret of at least 16 characters, such as `savanna wJalrXUtnFEMI7MDENG`"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// Others can read it.
    #[error("{path}: others may read it; `chmod 600` it")]
    Open {
        /// The file.
        path: PathBuf,
    },
}

impl Key {
    /// Reads a file of one line: name and secret, with a space between them.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        use std::os::unix::fs::PermissionsExt as _;
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(KeyError::Open { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(id), Some(secret), None) if secret.len() >= 16 => {
                Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
            }
            _ => Err(KeyError::Form { path: path.to_owned() }),
        }
    }
}

/// Who may ask.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) key: Option<Key>,
    pub(crate) loopback_only: bool,
}

impl Access {
    /// Checks what has come of a request before its body.
    pub(crate) fn check_head(&self, head: &Parts) -> Result<(), Refusal> {
        match &self.key {
            Some(key) => signature::Claim::of(key, head, now()).map(drop),
            None => self.check_origin(&head.headers),
        }
    }

    /// Checks a request that has come as a whole.
    pub(crate) fn check(&self, head: &Parts, body: &[u8]) -> Result<(), Refusal> {
        match &self.key {
            Some(key) => signature::check(key, head, body, now()),
            None => self.check_origin(&head.headers),
        }
    }

    /// Without a key, whoever reaches the loopback may ask; but no page of the web that a browser on this machine shows.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let refused = |why: &str| Err(Refusal::new(RefusalKind::MissingAuthentication, why));
        if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
            return refused("this came from a page of the web; set functions.secret_file to have requests signed");
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let is_local = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok();
        if self.loopback_only && !is_local {
            return refused("expected an address or `localhost` in the header Host, came another name");
        }
        Ok(())
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(headers: &[(&'static str, &'static str)]) -> bool {
        let access = Access { key: None, loopback_only: true };
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        access.check_origin(&headers).is_ok()
    }

    #[test]
    fn no_page_of_the_web_asks() {
        assert!(
            asks(&[("host", "127.0.0.1:9001")])
                && asks(&[("host", "localhost:9001")])
                && asks(&[("host", "[::1]:9001")])
        );
        assert!(!asks(&[("host", "127.0.0.1:9001"), ("origin", "https://evil.example")]));
        assert!(!asks(&[("host", "evil.example:9001")]));
    }

    #[test]
    fn a_key_is_one_line_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Key::read(&path)
        };
        assert_eq!(write("a 0123456789abcdef\n", 0o600).unwrap().id, "a");
        assert!(matches!(write("a 0123456789abcdef\n", 0o644), Err(KeyError::Open { .. })));
        assert!(matches!(write("a short\n", 0o600), Err(KeyError::Form { .. })));
    }
}
