//! What front and back ask each other.

use bytes::Bytes;
use savanna_epoch::NodeId;
use savanna_identity::Verifier;
use savanna_rpc::Method;
use savanna_tenants_host::{Acquaintance, Backend, Noted, SqlError, TenantId, error::state};
use serde::{Deserialize, Serialize};

use super::{line::LineImage, stream::Part};
use crate::connection::Beginning;

/// What a request keeps waiting, so that it has connections with its like only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is answered at once.
    Control,
    /// It is a part of what a client says or is answered, and is held back for an instant at most.
    Flights,
    /// It may wait long for its answer.
    Bulk,
}

/// The class of a method of this protocol.
#[must_use]
pub fn class_of(method: &str) -> Class {
    match method {
        Open::NAME | Adopt::NAME | SayToBack::NAME | SayToFront::NAME => Class::Flights,
        Know::NAME | Save::NAME | Remove::NAME => Class::Bulk,
        _ => Class::Control,
    }
}

/// A session, named by its front. No other ever had the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct SessionName {
    pub(super) front: NodeId,
    pub(super) number: u64,
}

/// A message of the protocol that tells a client why it does not come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused(#[serde(with = "super::bytes")] pub(super) Bytes);

/// Why a node did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    state: String,
    message: String,
    hint: Option<String>,
}

/// The states that requests to other nodes end with. Any other is told as an internal error.
const STATES: [&str; 10] = [
    state::INVALID_CATALOG_NAME,
    state::DISK_FULL,
    state::OBJECT_NOT_IN_PREREQUISITE_STATE,
    "55006",
    "57P01",
    "57P03",
    "58000",
    state::IO_ERROR,
    state::DATA_CORRUPTED,
    state::INTERNAL_ERROR,
];

impl From<SqlError> for Failure {
    fn from(SqlError { state, message, hint, .. }: SqlError) -> Self {
        Self { state: state.to_owned(), message, hint: hint.map(Into::into) }
    }
}

impl From<Failure> for SqlError {
    fn from(Failure { state, message, hint }: Failure) -> Self {
        let known = STATES.into_iter().find(|known| *known == state).unwrap_or(state::INTERNAL_ERROR);
        let error = Self::new(known, message);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// What does a tenant know of somebody?
pub(super) struct Know;

/// [`Acquaintance`] on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SentAcquaintance {
    guarded: bool,
    verifier: Option<String>,
}

impl From<Acquaintance> for SentAcquaintance {
    fn from(Acquaintance { guarded, verifier }: Acquaintance) -> Self {
        Self { guarded, verifier: verifier.map(|verifier| verifier.to_string()) }
    }
}

impl From<SentAcquaintance> for Acquaintance {
    fn from(SentAcquaintance { guarded, verifier }: SentAcquaintance) -> Self {
        // One that cannot be read is one that no password fits.
        Self { guarded, verifier: verifier.and_then(|text| text.parse::<Verifier>().ok()) }
    }
}

impl Method for Know {
    const NAME: &'static str = "tenants/know.1";
    const IDEMPOTENT: bool = true;
    type Request = (TenantId, String);
    type Reply = Result<SentAcquaintance, Failure>;
}

/// Which tenants are on a node, and what goes on in each: sessions, commits, rollbacks.
pub(super) struct List;

impl Method for List {
    const NAME: &'static str = "tenants/list.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Vec<(String, [u64; 3])>;
}

/// All that is committed of a tenant by now is to be in the storage.
pub(super) struct Save;

impl Method for Save {
    const NAME: &'static str = "tenants/save.1";
    const IDEMPOTENT: bool = true;
    type Request = TenantId;
    type Reply = Result<(), Failure>;
}

/// A tenant is to go for ever, which has this name.
pub(super) struct Remove;

impl Method for Remove {
    const NAME: &'static str = "tenants/remove.1";
    const IDEMPOTENT: bool = false;
    type Request = (TenantId, String);
    type Reply = Result<(), Failure>;
}

/// Begins a session for a client that has come in.
pub(super) struct Open;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    pub(super) session: SessionName,
    pub(super) tenant: TenantId,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) administrator: bool,
    pub(super) begins: Beginning,
}

/// Goes on with a session whose database has come from another node.
pub(super) struct Adopt;

impl Method for Adopt {
    const NAME: &'static str = "tenants/adopt.2";
    // What the client has said and nobody has obeyed comes with it, and would be done again.
    const IDEMPOTENT: bool = false;
    type Request = (OpenRequest, Opening, LineImage);
    type Reply = Result<(), Refused>;
}

/// Which opening of a session a part belongs to. A repeated request may open it at two nodes; the front listens to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opening(pub(super) u64);

impl Method for Open {
    const NAME: &'static str = "tenants/open.3";
    const IDEMPOTENT: bool = true;
    type Request = OpenRequest;
    type Reply = Result<Opening, Refused>;
}

/// Bytes of the client, and of the answer.
pub(super) struct SayToBack;

impl Method for SayToBack {
    const NAME: &'static str = "tenants/say.1";
    const IDEMPOTENT: bool = true;
    type Request = (SessionName, Opening, Part);
    type Reply = Part;
}

/// Bytes of the answer; how much of them was heard.
pub(super) struct SayToFront;

impl Method for SayToFront {
    const NAME: &'static str = "front/say.1";
    const IDEMPOTENT: bool = true;
    type Request = (u64, Opening, Part);
    type Reply = Part;
}

/// Whether the node's log has space for more.
pub(super) struct Space;

impl Method for Space {
    const NAME: &'static str = "tenants/space.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Result<(), Failure>;
}

/// Which connections the databases of a node have.
pub(super) struct ListBackends;

/// [`Backend`] on its way: its number, its database, whom it serves, and whether a statement of it runs.
pub(super) type SentBackend = (i32, String, String, bool);

pub(super) fn sent(backend: Backend) -> SentBackend {
    let Backend { pid, database, user, active, .. } = backend;
    (pid, database, user, active)
}

/// A connection of a node; none as that of the node that is asked.
pub(super) fn backend((pid, database, user, active): SentBackend, node: Option<&NodeId>) -> Backend {
    Backend { pid, database, user, active, node: node.map(|node| node.0.clone()), noted: Noted::default() }
}

impl Method for ListBackends {
    const NAME: &'static str = "tenants/backends.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Vec<SentBackend>;
}

/// Ends a connection that whoever asks has seen, or its statement. Whether it is there.
pub(super) struct SignalBackend;

impl Method for SignalBackend {
    const NAME: &'static str = "tenants/signal.1";
    const IDEMPOTENT: bool = true;
    /// The connection, and whether it is to end itself.
    type Request = (SentBackend, bool);
    type Reply = bool;
}

/// Ends the statement of the connection that has the key.
pub(super) struct Cancel;

impl Method for Cancel {
    const NAME: &'static str = "tenants/cancel.1";
    const IDEMPOTENT: bool = true;
    type Request = (i32, i32);
    type Reply = ();
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use savanna_rpc::{decode_value, encode_value};
    use serde::de::DeserializeOwned;

    use super::*;

    fn returns<T: Serialize + DeserializeOwned + Debug>(value: &T) {
        let bytes = encode_value("test", value).unwrap();
        let returned: T = decode_value("test", &bytes).unwrap();
        assert_eq!(format!("{returned:?}"), format!("{value:?}"));
    }

    #[test]
    fn everything_that_is_sent_arrives_as_it_was() {
        let session = SessionName { front: NodeId::new("n1"), number: u64::MAX };
        let part = Part { at: 7, bytes: Bytes::from_static(b"\0q"), ends: true, heard: 9 };
        returns(&(session.clone(), Opening(8), part.clone()));
        returns(&(session.number, Opening(8), part));
        returns(&Ok::<_, Refused>(Opening(9)));
        let verifier = Some(Verifier::of_password("secret", vec![7; 16]));
        for known in [Acquaintance::default(), Acquaintance { guarded: true, verifier }] {
            let sent = SentAcquaintance::from(known.clone());
            returns(&Ok::<_, Failure>(sent.clone()));
            assert_eq!(Acquaintance::from(sent), known);
        }
        for error in [SqlError::new("55006", "busy"), SqlError::new("3D000", "gone").hint("look")] {
            let failure = Failure::from(error.clone());
            returns(&Err::<(), _>(failure.clone()));
            assert_eq!(SqlError::from(failure), error);
        }
        returns(&(7_u64, "shop".to_owned()));
        let (database, user, node) = ("shop".to_owned(), "ann".to_owned(), NodeId::new("n2"));
        let known = Backend {
            pid: i32::MAX,
            database,
            user,
            active: true,
            node: Some(node.0.clone()),
            noted: Noted::default(),
        };
        returns(&(sent(known.clone()), true));
        assert_eq!(backend(sent(known.clone()), Some(&node)), known);
        returns(&Err::<Opening, _>(Refused(Bytes::from_static(b"E"))));
        let begins = Beginning::New(vec![("a".to_owned(), String::new())]);
        let (user, database) = ("ann".to_owned(), "shop".to_owned());
        returns(&OpenRequest { session, tenant: 3, user, database, administrator: false, begins });
    }
}
