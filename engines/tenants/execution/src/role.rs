//! Works changes of the roles out.

use savanna_tenants_sql::{
    define::role::{NewPassword, RoleChange},
    function::next_random,
};
use savanna_tenants_store::{
    database::Step,
    role::{self, SALT_BYTES, Verifier},
};
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{
    Run,
    effects::{Effects, ready},
};

impl Run<'_> {
    /// Works a change of the roles out.
    pub(crate) fn change_roles(
        &self,
        change: &RoleChange,
        effects: &mut Effects,
        notices: &mut Vec<String>,
    ) -> Result<Step<&'static str>> {
        self.check_right_to(change)?;
        match change {
            RoleChange::Create { name, password } => {
                let key = role::role_key(name);
                if ready!(effects.taken(&mut self.database(), &key)).is_some() {
                    return Err(SqlError::new(state::DUPLICATE_OBJECT, format!("role \"{name}\" already exists")));
                }
                let verifier = self.verifier(password, notices);
                ready!(effects.set(&mut self.database(), key, Some(role::encode(verifier.as_ref()))));
                Ok(Step::Done("CREATE ROLE"))
            }
            RoleChange::SetPassword { name, password } => {
                let key = role::role_key(name);
                if ready!(effects.taken(&mut self.database(), &key)).is_none() {
                    return Err(no_role(name));
                }
                let verifier = self.verifier(password, notices);
                ready!(effects.set(&mut self.database(), key, Some(role::encode(verifier.as_ref()))));
                Ok(Step::Done("ALTER ROLE"))
            }
            RoleChange::Drop { names, if_exists } => {
                for name in names {
                    let key = role::role_key(name);
                    if *name == self.facts.user {
                        return Err(SqlError::new("55006", "current user cannot be dropped"));
                    }
                    match ready!(effects.taken(&mut self.database(), &key)) {
                        Some(_) => ready!(effects.set(&mut self.database(), key, None)),
                        None if *if_exists => notices.push(format!("role \"{name}\" does not exist, skipping")),
                        None => return Err(no_role(name)),
                    }
                }
                Ok(Step::Done("DROP ROLE"))
            }
        }
    }

    /// Roles are made, changed and removed by administrators; a role of the database changes its own password.
    fn check_right_to(&self, change: &RoleChange) -> Result<()> {
        let verb = match change {
            RoleChange::SetPassword { name, .. } if *name == self.facts.user => return Ok(()),
            RoleChange::Create { .. } => "create",
            RoleChange::SetPassword { .. } => "alter",
            RoleChange::Drop { .. } => "drop",
        };
        if self.facts.administrator {
            return Ok(());
        }
        let error = SqlError::new(state::INSUFFICIENT_PRIVILEGE, format!("permission denied to {verb} role"));
        Err(error
            .hint("Administrators (roles of database postgres) may do that; others change their own password only."))
    }

    fn verifier(&self, password: &NewPassword, notices: &mut Vec<String>) -> Option<Verifier> {
        match password {
            NewPassword::None => None,
            NewPassword::Hashed(verifier) => Some(verifier.clone()),
            NewPassword::Clear(text) if text.is_empty() => {
                notices.push("empty string is not a valid password, clearing password".to_owned());
                None
            }
            NewPassword::Clear(text) => {
                let salt = [next_random(self.facts), next_random(self.facts)].map(u64::to_be_bytes).concat();
                debug_assert_eq!(salt.len(), SALT_BYTES);
                Some(Verifier::of_password(text, salt))
            }
        }
    }
}

fn no_role(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}
