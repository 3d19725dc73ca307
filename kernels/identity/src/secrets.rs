//! The files with the secrets of a node: its users, and the token of its control API.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{SALT_BYTES, Verifier};

/// A shorter token can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The operating system's reason.
    #[error("{path} cannot be read: {source}; check the path")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others may read it.
    #[error("{path} can be read by other users of this machine (mode {mode:o}); `chmod 600` it")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A line is none of its kind. It is not shown: it may be a password.
    #[error("{path}:{line}: expected {expected}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What a line has.
        expected: &'static str,
    },
    /// There is nothing in it.
    #[error("{path} has {nothing}")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is not there.
        nothing: &'static str,
    },
    /// No randomness.
    #[error("the operating system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// A user of every face.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The password, for protocols that send it.
    pub password: String,
    /// What checks a proof of it.
    pub verifier: Verifier,
}

/// It is nobody's business in a log.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

/// The users of a node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, User>);

impl Users {
    /// Reads a file with a name and a password in each line. Lines that are empty or begin with `#` are skipped.
    ///
    /// # Errors
    /// The file cannot be read, can be read by others, or has no such lines.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let mut users = BTreeMap::new();
        for (line, text) in (1..).zip(secret_text(path)?.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |expected| SecretError::Line { path: path.to_owned(), line, expected };
            let (name, password) =
                text.split_once(char::is_whitespace).ok_or_else(|| wrong("a name and a password"))?;
            let mut salt = vec![0; SALT_BYTES];
            getrandom::fill(&mut salt)?;
            let password = password.trim_start().to_owned();
            let verifier = Verifier::of_password(&password, salt);
            if users.insert(name.to_owned(), User { password, verifier }).is_some() {
                return Err(wrong("a name that no line before has"));
            }
        }
        if users.is_empty() {
            return Err(SecretError::Empty {
                path: path.to_owned(),
                nothing: "no users: a name and a password in each line",
            });
        }
        Ok(Self(users))
    }

    /// Whether there are any, so that nobody comes in unproved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A user.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &User)> {
        self.0.iter().map(|(name, user)| (name.as_str(), user))
    }
}

/// What a client of the control API has to send.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// It is nobody's business in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// What a token is.
    pub const EXPECTED: &str =
        "a token of 16 or more ASCII characters without spaces, such as of `openssl rand -hex 32`";

    /// Reads a file with one line.
    ///
    /// # Errors
    /// The file cannot be read, can be read by others, or its first line is no token.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let text = secret_text(path)?;
        let wrong = || SecretError::Line { path: path.to_owned(), line: 1, expected: Self::EXPECTED };
        Self::parse(text.lines().next().unwrap_or_default()).ok_or_else(wrong)
    }

    /// The token that a text is, with space around it or without.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let token = text.trim();
        let is_token = token.len() >= TOKEN_BYTES_MIN && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(token.to_owned()))
    }

    /// For who sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether somebody has sent it. How long this takes says nothing about where they differ.
    #[must_use]
    pub fn is(&self, sent: &[u8]) -> bool {
        let [ours, theirs] = [self.0.as_bytes(), sent].map(Sha256::digest);
        ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

/// The text of a file that nobody else may read.
fn secret_text(path: &Path) -> Result<String, SecretError> {
    let unread = |source| SecretError::Read { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(unread)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Open { path: path.to_owned(), mode });
    }
    fs::read_to_string(path).map_err(unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    fn users(text: &str) -> Result<Users, SecretError> {
        let (_directory, path) = file(text, 0o600);
        Users::read(&path)
    }

    #[test]
    fn a_line_has_a_name_and_a_password() {
        let users = users("# of the node\n\nann  open sesame\nbob\tsecret\n").unwrap();
        let passwords: Vec<_> = users.iter().map(|(name, user)| (name, user.password.as_str())).collect();
        assert_eq!(passwords, [("ann", "open sesame"), ("bob", "secret")]);
    }

    #[test]
    fn what_is_no_file_of_users_is_refused_without_showing_it() {
        for text in ["", "# nobody\n", "ann\n", "ann one\nann two\n"] {
            let error = users(text).unwrap_err().to_string();
            assert!(!error.contains("two") && !error.contains("ann"), "{error}");
        }
    }

    #[test]
    fn secrets_that_others_can_read_are_refused() {
        for mode in [0o640, 0o604, 0o666] {
            let (_directory, path) = file("ann secret\n", mode);
            assert!(matches!(Users::read(&path), Err(SecretError::Open { .. })));
            assert!(matches!(Token::read(&path), Err(SecretError::Open { .. })));
        }
    }

    #[test]
    fn a_token_is_long_and_is_compared_as_a_whole() {
        let (_directory, path) = file("0123456789abcdef\n", 0o600);
        let token = Token::read(&path).unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in [&b""[..], b"0123456789abcde", b"0123456789abcdef0", b"x123456789abcdef"] {
            assert!(!token.is(other));
        }
        for text in ["", "short\n", "0123456789 abcdef\n"] {
            let (_directory, path) = file(text, 0o600);
            assert!(Token::read(&path).is_err());
        }
    }
}
