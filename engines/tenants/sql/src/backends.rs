//! The connections of all databases, as statements see them: who they are, and how what they do is ended.

use std::fmt::Debug;

use crate::doing::Noted;
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    dialect::PostgreSqlDialect,
    tokenizer::{Token, TokenWithSpan, Tokenizer},
};

/// The longest text that may ask for a signal by itself.
const REQUEST_BYTES_MAX: usize = 256;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its number, which its client was told.
    pub pid: i32,
    /// The database that it is in.
    pub database: String,
    /// Whom it serves.
    pub user: String,
    /// Whether a statement of it runs or waits.
    pub active: bool,
    /// The node that it is on; none if that is this one.
    pub node: Option<String>,
    /// What it does, as far as that is known: only of those on this node.
    pub noted: Noted,
}

/// What a connection is told by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its statement is to end.
    Cancel,
    /// It is to end itself.
    Terminate,
}

/// All connections.
pub trait Backends: Debug + Send + Sync {
    /// Who they are.
    fn list(&self) -> Vec<Backend>;
    /// Tells one something.
    fn tell(&self, pid: i32, signal: Signal);

    /// Whether there are others on other nodes, which have to be asked.
    fn has_others(&self) -> bool {
        false
    }

    /// Tells one on another node something, as far as that is reached; nobody waits for it.
    fn tell_there(&self, _backend: &Backend, _signal: Signal) {}
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Whom its connection serves.
    pub user: &'a str,
    /// The database that it is in.
    pub database: &'a str,
    /// Whether it may end what anybody does.
    pub administrator: bool,
}

impl Asker<'_> {
    /// Whether it may know and end what a connection does: its own user's, or any if it is an administrator.
    pub(crate) fn commands(&self, backend: &Backend) -> bool {
        self.administrator || (backend.database == self.database && backend.user == self.user)
    }

    /// The connections that it may know of: those of its database.
    pub(crate) fn sees(&self, backend: &Backend) -> bool {
        self.administrator || backend.database == self.database
    }

    /// Tells a connection something, on this node or among those `elsewhere`. Whether there is one of the number.
    ///
    /// # Errors
    /// 42501.
    pub fn tell(&self, backends: &dyn Backends, elsewhere: &[Backend], pid: i32, signal: Signal) -> Result<bool> {
        let here = backends.list();
        match here.iter().chain(elsewhere).find(|backend| backend.pid == pid && self.sees(backend)) {
            None => Ok(false),
            Some(backend) if !self.commands(backend) => {
                let what = match signal {
                    Signal::Cancel => "query is being canceled",
                    Signal::Terminate => "process is being terminated",
                };
                let message = format!("must be a member of the role whose {what} or an administrator");
                Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message))
            }
            Some(backend) => {
                match backend.node {
                    None => backends.tell(pid, signal),
                    Some(_) => backends.tell_there(backend, signal),
                }
                Ok(true)
            }
        }
    }
}

/// The signal that a text asks for if it does nothing else, `SELECT pg_cancel_backend(1)`: who serves the client can send it while the
/// database is busy with the statement that is to end.
#[must_use]
pub fn request(text: &str) -> Option<(&'static str, Signal, i32)> {
    if text.len() > REQUEST_BYTES_MAX {
        return None;
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().ok()?;
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon)).collect();
    let [Token::Word(select), Token::Word(name), Token::LParen, Token::Number(pid, _), Token::RParen] =
        tokens.as_slice()
    else {
        return None;
    };
    let (name, signal) = signal_named(&name.value)?;
    select.value.eq_ignore_ascii_case("select").then_some((name, signal, pid.parse().ok()?))
}

/// The signal that a function sends.
fn signal_named(name: &str) -> Option<(&'static str, Signal)> {
    let signals = [("pg_cancel_backend", Signal::Cancel), ("pg_terminate_backend", Signal::Terminate)];
    signals.into_iter().find(|(other, _)| name.eq_ignore_ascii_case(other))
}

/// Refuses a definition that names a function by which connections are ended: whoever reads the view or writes the row that computes it, an
/// administrator perhaps, would end them with its own rights.
pub(crate) fn refuse_stored_signals(tokens: &[TokenWithSpan]) -> Result<()> {
    let named = tokens.iter().find_map(|token| match &token.token {
        Token::Word(word) => signal_named(&word.value),
        _ => None,
    });
    match named {
        None => Ok(()),
        Some((name, _)) => Err(SqlError::unsupported(format_args!("{name}() where it is stored"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Two(Mutex<Vec<(i32, Signal)>>);

    impl Backends for Two {
        fn list(&self) -> Vec<Backend> {
            let backend = |(pid, database, user): (i32, &str, &str)| Backend {
                pid,
                database: database.to_owned(),
                user: user.to_owned(),
                active: true,
                node: None,
                noted: Noted::default(),
            };
            [(1, "a", "ann"), (2, "a", "bob"), (3, "b", "ann")].map(backend).to_vec()
        }

        fn tell(&self, pid: i32, signal: Signal) {
            self.0.lock().unwrap().push((pid, signal));
        }

        fn tell_there(&self, backend: &Backend, signal: Signal) {
            assert_eq!(backend.node.as_deref(), Some("n2"));
            self.0.lock().unwrap().push((-backend.pid, signal));
        }
    }

    #[test]
    fn a_user_ends_its_own_statements_and_an_administrator_everybodys() {
        let all = Two::default();
        let ann = Asker { user: "ann", database: "a", administrator: false };
        assert_eq!(ann.tell(&all, &[], 1, Signal::Cancel), Ok(true));
        assert_eq!(ann.tell(&all, &[], 2, Signal::Terminate).unwrap_err().state, "42501");
        assert_eq!(ann.tell(&all, &[], 3, Signal::Cancel), Ok(false), "it does not hear of other databases");
        let root = Asker { administrator: true, ..ann };
        assert_eq!(root.tell(&all, &[], 3, Signal::Terminate), Ok(true));
        assert_eq!(root.tell(&all, &[], 4, Signal::Terminate), Ok(false));
        assert_eq!(*all.0.lock().unwrap(), [(1, Signal::Cancel), (3, Signal::Terminate)]);
    }

    #[test]
    fn those_on_other_nodes_are_told_there_and_by_the_same_rights() {
        let all = Two::default();
        let there = |pid, database: &str| Backend {
            pid,
            database: database.to_owned(),
            user: "bob".to_owned(),
            active: false,
            node: Some("n2".to_owned()),
            noted: Noted::default(),
        };
        let elsewhere = [there(7, "c"), there(1, "c")];
        let ann = Asker { user: "ann", database: "a", administrator: false };
        assert_eq!(ann.tell(&all, &elsewhere, 7, Signal::Terminate), Ok(false));
        let root = Asker { administrator: true, ..ann };
        assert_eq!(root.tell(&all, &elsewhere, 7, Signal::Terminate), Ok(true));
        assert_eq!(root.tell(&all, &elsewhere, 1, Signal::Cancel), Ok(true), "the one here, if both have the number");
        assert_eq!(*all.0.lock().unwrap(), [(-7, Signal::Terminate), (1, Signal::Cancel)]);
    }

    #[test]
    fn a_request_is_nothing_but_a_signal() {
        assert_eq!(request("select PG_Cancel_Backend( 12 ) ;"), Some(("pg_cancel_backend", Signal::Cancel, 12)));
        assert_eq!(request("SELECT pg_terminate_backend(7)").map(|asked| asked.1), Some(Signal::Terminate));
        for other in
            ["SELECT pg_cancel_backend(pid) FROM p", "SELECT 1", "", "SELECT pg_cancel_backend(1), 2", "SELECT '"]
        {
            assert_eq!(request(other), None, "{other}");
        }
    }
}
