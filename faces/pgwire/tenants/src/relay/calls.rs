//! What front and back ask each other.

use bytes::Bytes;
use savanna_epoch::{NodeId, ShardId};
use savanna_identity::Verifier;
use savanna_rpc::Method;
use savanna_tenants_host::{Access, TenantId};
use serde::{Deserialize, Serialize};

use super::stream::Part;

/// The shard of a tenant.
pub(super) fn shard(tenant: TenantId) -> ShardId {
    ShardId::new(format!("tenants/{tenant}"))
}

/// The shard that knows the names of all tenants, and who may come in.
pub(super) fn names() -> ShardId {
    ShardId::new("tenants/postgres")
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

/// How may a client come in?
pub(super) struct Login;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoginRequest {
    pub(super) user: String,
    pub(super) database: String,
    /// Whether it comes from its front's machine.
    pub(super) is_local: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoginReply {
    /// Told once it has come in.
    pub(super) tenant: Result<TenantId, Refused>,
    pub(super) access: SentAccess,
}

/// [`Access`] on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SentAccess {
    Trusted,
    Elsewhere,
    Password { verifier: Option<String>, administrator: bool },
}

impl From<Access> for SentAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Trusted => Self::Trusted,
            Access::Elsewhere => Self::Elsewhere,
            Access::Password { verifier, administrator } => {
                Self::Password { verifier: verifier.map(|verifier| verifier.to_string()), administrator }
            }
        }
    }
}

impl From<SentAccess> for Access {
    fn from(sent: SentAccess) -> Self {
        match sent {
            SentAccess::Trusted => Self::Trusted,
            SentAccess::Elsewhere => Self::Elsewhere,
            // One that cannot be read is one that no password fits.
            SentAccess::Password { verifier, administrator } => {
                Self::Password { verifier: verifier.and_then(|text| text.parse::<Verifier>().ok()), administrator }
            }
        }
    }
}

impl Method for Login {
    const NAME: &'static str = "tenants/login.1";
    const IDEMPOTENT: bool = true;
    type Request = LoginRequest;
    type Reply = Result<LoginReply, Refused>;
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
    pub(super) settings: Vec<(String, String)>,
}

/// Which opening of a session a part belongs to. A repeated request may open it at two nodes; the front listens to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opening(pub(super) u64);

impl Method for Open {
    const NAME: &'static str = "tenants/open.1";
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
        returns(&LoginRequest { user: "ann".into(), database: "shop".into(), is_local: true });
        let refused = Refused(Bytes::from_static(b"E"));
        let verifier = Some(Verifier::of_password("secret", vec![7; 16]));
        for access in [Access::Trusted, Access::Elsewhere, Access::Password { verifier, administrator: true }] {
            let sent = SentAccess::from(access.clone());
            returns(&Ok::<_, Refused>(LoginReply { tenant: Err(refused.clone()), access: sent.clone() }));
            assert_eq!(Access::from(sent), access);
        }
        let settings = vec![("a".to_owned(), String::new())];
        let (user, database) = ("ann".to_owned(), "shop".to_owned());
        returns(&OpenRequest { session, tenant: 3, user, database, administrator: false, settings });
    }
}
