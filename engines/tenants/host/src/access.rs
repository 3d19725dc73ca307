//! Who is trusted, and who has to prove who it is: a decision without I/O.

use savanna_identity::{Users, Verifier};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::role::Acquaintance;

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Whom it wants to be.
    pub user: &'a str,
    /// Where it wants to go, if there is such a tenant.
    pub tenant: Option<TenantId>,
    /// Whether it comes from this machine.
    pub is_local: bool,
    /// The node's administrators.
    pub users: &'a Users,
}

/// How a client may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is trusted, and an administrator: nobody has a password yet, and it comes from this machine.
    Trusted,
    /// It is refused: nobody has a password yet, and it comes from elsewhere.
    Elsewhere,
    /// It has to prove that it knows a password.
    Password {
        /// What checks it; nothing if no password fits.
        verifier: Option<Verifier>,
        /// Whether it may do things outside of its database then.
        administrator: bool,
    },
}

/// Decides by what the node's configuration, the database of administrators and the client's own know of it.
pub(crate) fn decide(claim: &Claim<'_>, administrators: Acquaintance, own: Acquaintance) -> Access {
    if claim.users.is_empty() && !administrators.guarded && !own.guarded {
        return if claim.is_local { Access::Trusted } else { Access::Elsewhere };
    }
    // An administrator is one everywhere: a role that a database has made of the same name does not take its place.
    let configured = claim.users.get(claim.user).map(|user| user.verifier.clone());
    let administering = configured.or(administrators.verifier);
    let administrator = administering.is_some();
    Access::Password { verifier: administering.or(own.verifier), administrator }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(password: &str) -> Acquaintance {
        Acquaintance { guarded: true, verifier: Some(Verifier::of_password(password, vec![7; 16])) }
    }

    #[test]
    fn nobody_is_trusted_once_anybody_has_a_password_and_an_administrator_is_one_everywhere() {
        let users = Users::default();
        let local = Claim { user: "ann", tenant: Some(1), is_local: true, users: &users };
        let elsewhere = Claim { is_local: false, ..local };
        let nobody = Acquaintance::default;
        assert_eq!(decide(&local, nobody(), nobody()), Access::Trusted);
        assert_eq!(decide(&elsewhere, nobody(), nobody()), Access::Elsewhere);

        let guarded = || Acquaintance { guarded: true, verifier: None };
        let unknown = Access::Password { verifier: None, administrator: false };
        assert_eq!(decide(&local, nobody(), guarded()), unknown, "the database has other roles");
        assert_eq!(decide(&local, guarded(), nobody()), unknown, "administrators have passwords");

        let own = Access::Password { verifier: role("own").verifier, administrator: false };
        assert_eq!(decide(&elsewhere, nobody(), role("own")), own);
        let administering = Access::Password { verifier: role("root").verifier, administrator: true };
        assert_eq!(decide(&elsewhere, role("root"), role("own")), administering);
    }
}
