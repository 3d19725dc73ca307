//! `CREATE`, `ALTER` and `DROP ROLE`: who may come in, and with which password.

use savanna_identity::Verifier;
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, AlterRoleOperation, CreateRole, Password, RoleOption};

use crate::parse::name::{name_of, object_name};

/// A password as a statement has it.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone)]
pub enum NewPassword {
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
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum RoleChange {
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
