//! The files with the secrets of a node: its users, and the token of its control API.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::verifier::{are_equal, hmac, normal};
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
    /// What checks a proof of the password, for protocols that do not send it.
    pub verifier: Verifier,
    /// What checks the password itself, for protocols that send it.
    password: KnownPassword,
}

/// It is nobody's business in a log.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

impl User {
    /// A user with this password, which is not kept.
    ///
    /// # Errors
    /// The operating system has no random numbers.
    fn with_password(password: &str) -> Result<Self, getrandom::Error> {
        let mut salt = vec![0; SALT_BYTES];
        getrandom::fill(&mut salt)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let known = KnownPassword { key, code: code_of(&key, password) };
        Ok(Self { verifier: Verifier::of_password(password, salt), password: known })
    }

    /// Whether somebody has sent its password. How long this takes says nothing about where they differ.
    #[must_use]
    pub fn has_password(&self, sent: &[u8]) -> bool {
        self.password.is(sent)
    }
}

/// A password as this process knows it: by its code under a key that is nowhere else. So a check costs one hash, and not the
/// thousands that make a [`Verifier`] safe where it is stored.
#[derive(Clone, PartialEq, Eq)]
struct KnownPassword {
    key: [u8; 32],
    code: [u8; 32],
}

impl KnownPassword {
    fn is(&self, sent: &[u8]) -> bool {
        let (text, is_text) = str::from_utf8(sent).map_or(("", false), |text| (text, true));
        is_text & are_equal(&self.code, &code_of(&self.key, text))
    }
}

fn code_of(key: &[u8; 32], password: &str) -> [u8; 32] {
    hmac(key, &[normal(password).as_bytes()])
}

/// Takes the place of users that there are not: no password is known to have this code.
const NOBODY: KnownPassword = KnownPassword { key: [0; 32], code: [0; 32] };

/// The users of a node, by name. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Arc<BTreeMap<String, User>>);

impl Users {
    /// Reads a file with a name and a password in each line. Lines that are empty or begin with `#` are skipped.
    ///
    /// # Errors
    /// The file cannot be read, can be read by others, or has no such lines.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let mut users = BTreeMap::new();
        for (line, login) in Login::all(path)? {
            if users.insert(login.name, User::with_password(&login.password)?).is_some() {
                return Err(wrong_line(path, line, "a name that no line before has"));
            }
        }
        Ok(Self(Arc::new(users)))
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

    /// Whether somebody has sent the name and the password of a user. It takes as long for a name that there is not.
    #[must_use]
    pub fn admit(&self, name: &str, password: &[u8]) -> bool {
        let user = self.get(name);
        user.map_or(&NOBODY, |user| &user.password).is(password) & user.is_some()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &User)> {
        self.0.iter().map(|(name, user)| (name.as_str(), user))
    }
}

/// What a client sends to come in.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub name: String,
    /// Its password.
    pub password: String,
}

/// It is nobody's business in a log.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl Login {
    /// That of a user in a file of users, or of its first user.
    ///
    /// # Errors
    /// As [`Users::read`]; and the file does not have the user.
    pub fn read(path: &Path, user: Option<&str>) -> Result<Self, SecretError> {
        let mut logins = Self::all(path)?.into_iter().map(|(_, login)| login);
        let found = logins.find(|login| user.is_none_or(|user| login.name == user));
        found.ok_or_else(|| SecretError::Empty { path: path.to_owned(), nothing: "no line for this user" })
    }

    /// All that are in a file, with their lines; there is one at least.
    fn all(path: &Path) -> Result<Vec<(usize, Self)>, SecretError> {
        let mut logins = Vec::new();
        for (line, text) in (1..).zip(secret_text(path)?.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let parts = text.split_once(char::is_whitespace);
            let (name, password) = parts.ok_or_else(|| wrong_line(path, line, "a name and a password"))?;
            logins.push((line, Self { name: name.to_owned(), password: password.trim_start().to_owned() }));
        }
        if logins.is_empty() {
            let nothing = "no users: a name and a password in each line";
            return Err(SecretError::Empty { path: path.to_owned(), nothing });
        }
        Ok(logins)
    }
}

fn wrong_line(path: &Path, line: usize, expected: &'static str) -> SecretError {
    SecretError::Line { path: path.to_owned(), line, expected }
}

/// Reads a file whose first line is a password.
///
/// # Errors
/// The file cannot be read, can be read by others, or its first line is empty.
pub fn read_password(path: &Path) -> Result<String, SecretError> {
    let text = secret_text(path)?;
    let password = text.lines().next().filter(|line| !line.is_empty());
    password.map(ToOwned::to_owned).ok_or_else(|| wrong_line(path, 1, "a password"))
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
        Self::parse(text.lines().next().unwrap_or_default()).ok_or_else(|| wrong_line(path, 1, Self::EXPECTED))
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
        let [ours, theirs] = [self.0.as_bytes(), sent].map(|bytes| Sha256::digest(bytes).into());
        are_equal(&ours, &theirs)
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
        assert_eq!(users.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["ann", "bob"]);
        assert!(users.admit("ann", b"open sesame") && users.admit("bob", b"secret"));
        for (name, password) in
            [("ann", &b"secret"[..]), ("ann", b""), ("bob", b"secret "), ("eve", b""), ("bob", b"\xff")]
        {
            assert!(!users.admit(name, password), "{name}");
        }
        assert!(!Users::default().admit("ann", b""));
    }

    #[test]
    fn a_password_is_the_same_however_its_letters_are_composed() {
        let users = users("ann caf\u{e9}\n").unwrap();
        assert!(users.admit("ann", "cafe\u{301}".as_bytes()));
    }

    #[test]
    fn a_client_finds_its_login_in_a_file_of_users() {
        let (_directory, path) = file("ann  open sesame\nbob secret\n", 0o600);
        let found = |user| Login::read(&path, user).map(|login| (login.name, login.password)).ok();
        let login = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(found(None), login("ann", "open sesame"));
        assert_eq!(found(Some("bob")), login("bob", "secret"));
        assert_eq!(found(Some("eve")), None);
    }

    #[test]
    fn a_file_of_a_password_has_it_in_its_first_line() {
        let (_directory, path) = file("open sesame\n", 0o600);
        assert_eq!(read_password(&path).unwrap(), "open sesame");
        for (text, mode) in [("", 0o600), ("\n", 0o600), ("open sesame\n", 0o640)] {
            let (_directory, path) = file(text, mode);
            assert!(read_password(&path).is_err());
        }
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
