//! Access control lists as messages.

use savanna_files_host::Request;
use savanna_files_host::change::{AclEntry, AclKind};
use savanna_files_host::request::{AccessList, AclEdit};

use crate::wire;
use crate::wire::client::{AclStatus, EditAcl};
use crate::wire::hdfs::Permission;

const DEFAULT: i32 = 1;

/// The request that changes a list in this way.
pub(super) fn edit(of: impl FnOnce(Vec<AclEntry>) -> AclEdit) -> impl FnOnce(EditAcl) -> Request {
    |EditAcl { path, entries }| Request::EditAcl { path, edit: of(entries.into_iter().map(entry).collect()) }
}

fn entry(entry: wire::client::AclEntry) -> AclEntry {
    let wire::client::AclEntry { kind, scope, bits, name } = entry;
    let kind = match kind {
        0 => AclKind::User,
        1 => AclKind::Group,
        2 => AclKind::Mask,
        _ => AclKind::Other,
    };
    let name = name.filter(|name| !name.is_empty()).map(Into::into);
    AclEntry { is_default: scope == DEFAULT, kind, name, bits: u8::try_from(bits & 7).unwrap_or(0) }
}

pub(crate) fn message(entry: &AclEntry) -> wire::client::AclEntry {
    let kind = match entry.kind {
        AclKind::User => 0,
        AclKind::Group => 1,
        AclKind::Mask => 2,
        AclKind::Other => 3,
    };
    let name = entry.name.as_deref().map(ToOwned::to_owned);
    wire::client::AclEntry { kind, scope: i32::from(entry.is_default), bits: i32::from(entry.bits), name }
}

/// A list as clients hear of it.
pub(super) fn status(list: &AccessList) -> AclStatus {
    AclStatus {
        owner: list.owner.to_string(),
        group: list.group.to_string(),
        is_sticky: list.mode & 0o1000 != 0,
        entries: list.entries.iter().map(message).collect(),
        permission: Some(Permission { bits: u32::from(list.mode) }),
    }
}
