//! `CREATE`, `ALTER` and `DROP ROLE`: who may come in, and with which password.

use savanna_tenants_store::{
    database::Step,
    role::{self, SALT_BYTES, Verifier},
};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, AlterRoleOperation, CreateRole, Password, RoleOption};

use crate::sql::{
    effects::{Effects, ready},
    function::next_random,
    name::{name_of, object_name},
    run::Run,
};

/// A password as a statement has it.
#[derive(Clone)]
pub(crate) enum NewPassword {
    /// The role can no longer come in.
    None,
    Clear(String),
    /// A client has hashed it already.
    Hashed(Verifier),
}

/// It is nobody's business in a log.
impl std::fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewPassword")
    }
}

/// A change of the roles.
#[derive(Debug)]
pub(crate) enum RoleChange {
    Create { name: String, password: NewPassword },
    SetPassword { name: String, password: NewPassword },
    Drop { names: Vec<String>, if_exists: bool },
}

impl RoleChange {
    pub(crate) fn create(create: &CreateRole) -> Result<Self> {
        let [name] = create.names.as_slice() else { return Err(SqlError::unsupported("several roles at once")) };
        let name = object_name(name)?;
        let wants_more = create.create_db == Some(true)
            || create.create_role == Some(true)
            || create.replication == Some(true)
            || create.bypassrls == Some(true)
            || create.superuser == Some(false)
            || create.connection_limit.is_some()
            || create.valid_until.is_some()
            || create.authorization_owner.is_some()
            || create.if_not_exists
            || [&create.in_role, &create.in_group, &create.role, &create.user, &create.admin]
                .iter()
                .any(|roles| !roles.is_empty());
        if wants_more {
            return Err(SqlError::unsupported("CREATE ROLE with other options than LOGIN and PASSWORD"));
        }
        if create.login != Some(true) {
            let error = SqlError::unsupported("a role that cannot log in");
            return Err(error.hint("Write CREATE USER, or CREATE ROLE .. LOGIN."));
        }
        if matches!(name.as_str(), "public" | "none") || name.starts_with("pg_") {
            return Err(SqlError::new("42939", format!("role name \"{name}\" is reserved")));
        }
        let password = create.password.as_ref().map_or(Ok(NewPassword::None), new_password)?;
        Ok(Self::Create { name, password })
    }

    pub(crate) fn alter(name: &ast::Ident, operation: &AlterRoleOperation) -> Result<Self> {
        match operation {
            AlterRoleOperation::WithOptions { options } => match options.as_slice() {
                [RoleOption::Password(password)] => {
                    Ok(Self::SetPassword { name: name_of(name), password: new_password(password)? })
                }
                _ => Err(SqlError::unsupported("ALTER ROLE with other options than PASSWORD")),
            },
            _ => Err(SqlError::unsupported("ALTER ROLE without PASSWORD")),
        }
    }
}

fn new_password(password: &Password) -> Result<NewPassword> {
    let text = match password {
        Password::NullPassword => return Ok(NewPassword::None),
        Password::Password(ast::Expr::Value(value)) => value.value.clone().into_string(),
        Password::Password(_) => None,
    };
    let text = text.ok_or_else(|| SqlError::new(state::SYNTAX_ERROR, "a password is written as 'a text'"))?;
    let is_md5 = text.len() == 35 && text.starts_with("md5") && text[3..].bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.parse() {
        Ok(verifier) => Ok(NewPassword::Hashed(verifier)),
        Err(_) if is_md5 => Err(SqlError::unsupported("a password that was hashed by MD5")
            .hint("Set password_encryption to scram-sha-256.")),
        Err(_) => Ok(NewPassword::Clear(text)),
    }
}

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
