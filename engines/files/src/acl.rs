//! Access control lists, as HDFS has them: who may do what beside owner, group and others.
//!
//! An inode keeps of its list what its mode has no bits for: named users, the group, named groups, and the whole list that is for what will be made in a
//! directory (the default entries). The owner's bits and those of others are the mode's. So is the mask, the most that a kept entry allows: it is where the
//! bits of the group are in an inode without a list.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::change::{AclEntry, AclKind};
use crate::error::{Class, FilesError};
use crate::request::{AclEdit, Modes};

/// The most entries that a list has, for the inode and for what will be in it each.
const ENTRIES_MAX: usize = 32;
/// The longest name of a user or a group.
const NAME_MAX: usize = 1_024;
/// What every list has.
const REQUIRED: [AclKind; 3] = [AclKind::User, AclKind::Group, AclKind::Other];
/// Whether entries are default ones.
const SCOPES: [bool; 2] = [false, true];

/// Whom an entry is for; in the order of lists.
type Key = (bool, AclKind, Option<Arc<str>>);

fn key(entry: &AclEntry) -> Key {
    (entry.is_default, entry.kind, entry.name.clone())
}

fn refused(words: impl Into<String>) -> FilesError {
    FilesError::new(Class::Acl, words)
}

/// Three bits of a mode.
fn bits(mode: u16, shift: u32) -> u8 {
    u8::try_from(mode >> shift & 7).unwrap_or(0)
}

/// A mode with the bits of an owner, of the group or mask, and of others.
fn with_bits(mode: u16, [owner, class, other]: [u8; 3]) -> u16 {
    mode & !0o777 | u16::from(owner) << 6 | u16::from(class) << 3 | u16::from(other)
}

/// The whole list of an inode that keeps these entries.
fn whole(kept: &[AclEntry], mode: u16) -> Vec<AclEntry> {
    let own = |kind, shift| AclEntry { is_default: false, kind, name: None, bits: bits(mode, shift) };
    let (default, access): (Vec<_>, Vec<_>) = kept.iter().cloned().partition(|entry| entry.is_default);
    let mut all = vec![own(AclKind::User, 6)];
    if access.is_empty() {
        all.push(own(AclKind::Group, 3));
    } else {
        all.extend(access);
        all.push(own(AclKind::Mask, 3));
    }
    all.push(own(AclKind::Other, 0));
    all.extend(default);
    all
}

/// What an inode keeps of a whole list, in its order, and the mode that it has then.
fn split(all: Vec<AclEntry>, mode: u16) -> (Vec<AclEntry>, u16) {
    let (default, access): (Vec<_>, Vec<_>) = all.into_iter().partition(|entry| entry.is_default);
    let own = |kind| access.iter().find(|entry| entry.kind == kind && entry.name.is_none()).map(|entry| entry.bits);
    let class = own(AclKind::Mask).or_else(|| own(AclKind::Group));
    let mode = with_bits(mode, [own(AclKind::User), class, own(AclKind::Other)].map(Option::unwrap_or_default));
    let is_kept = |entry: &AclEntry| match entry.kind {
        AclKind::User => entry.name.is_some(),
        AclKind::Group => true,
        AclKind::Mask | AclKind::Other => false,
    };
    let mut kept = if access.len() > REQUIRED.len() { access } else { Vec::new() };
    kept.retain(is_kept);
    kept.extend(default);
    (kept, mode)
}

/// What an inode keeps after an edit of its list, and its mode then.
///
/// # Errors
/// [`Class::Acl`], if what comes out is no list.
pub(crate) fn edited(
    kept: &[AclEntry],
    mode: u16,
    edit: &AclEdit,
    is_directory: bool,
) -> Result<(Vec<AclEntry>, u16), FilesError> {
    let old = whole(kept, mode);
    let all = match edit {
        AclEdit::Clear => return Ok(cleared(kept, mode)),
        AclEdit::Replace(entries) if entries.is_empty() => return Ok(cleared(kept, mode)),
        AclEdit::Replace(entries) => {
            let mut draft = Draft::of(entries)?;
            let is_kept = |entry: &&AclEntry| !draft.is_touched[usize::from(entry.is_default)];
            let rest: Vec<&AclEntry> = old.iter().filter(is_kept).collect();
            rest.into_iter().for_each(|entry| draft.keep(entry));
            draft.done()?
        }
        AclEdit::Modify(entries) => {
            let mut draft = Draft::of(entries)?;
            let named: Vec<Key> = entries.iter().map(key).collect();
            old.iter().filter(|entry| !named.contains(&key(entry))).for_each(|entry| draft.keep(entry));
            draft.done()?
        }
        AclEdit::Remove(entries) => {
            check_entries(entries)?;
            let named: Vec<Key> = entries.iter().map(key).collect();
            let mut draft = Draft::default();
            for entry in &old {
                if !named.contains(&key(entry)) {
                    draft.keep(entry);
                    continue;
                }
                let scope = usize::from(entry.is_default);
                draft.is_touched[scope] = true;
                draft.is_mask_touched[scope] |= entry.kind == AclKind::Mask;
            }
            draft.done()?
        }
        AclEdit::RemoveDefault => old.into_iter().filter(|entry| !entry.is_default).collect(),
    };
    if !is_directory && all.iter().any(|entry| entry.is_default) {
        return Err(refused("Invalid ACL: only directories may have a default ACL."));
    }
    Ok(split(all, mode))
}

/// An inode without a list. The bits of its group are those that the list had for it.
fn cleared(kept: &[AclEntry], mode: u16) -> (Vec<AclEntry>, u16) {
    let of_group = |entry: &&AclEntry| !entry.is_default && entry.kind == AclKind::Group && entry.name.is_none();
    let mode = match kept.iter().find(of_group) {
        Some(group) => with_bits(mode, [bits(mode, 6), group.bits, bits(mode, 0)]),
        None => mode,
    };
    (Vec::new(), mode)
}

/// What something new keeps, and its mode, in a directory that keeps these entries.
pub(crate) fn inherited(of_parent: &[AclEntry], modes: Modes, is_directory: bool) -> (Vec<AclEntry>, u16) {
    let default: Vec<&AclEntry> = of_parent.iter().filter(|entry| entry.is_default).collect();
    if default.is_empty() {
        return (Vec::new(), modes.masked);
    }
    // The mask of whoever makes it does not count where the directory has one.
    let mode = modes.unmasked.unwrap_or(modes.masked);
    let is_minimal = default.len() == REQUIRED.len();
    let own = default.iter().map(|entry| {
        let most = match (entry.kind, entry.name.is_some()) {
            (AclKind::User, false) => bits(mode, 6),
            (AclKind::Group, false) if is_minimal => bits(mode, 3),
            (AclKind::Mask, _) => bits(mode, 3),
            (AclKind::Other, _) => bits(mode, 0),
            (AclKind::User | AclKind::Group, _) => 7,
        };
        AclEntry { is_default: false, bits: entry.bits & most, ..AclEntry::clone(entry) }
    });
    let mut all: Vec<AclEntry> = own.collect();
    if is_directory {
        all.extend(default.into_iter().cloned());
    }
    split(all, mode)
}

/// A list that comes about.
#[derive(Debug, Default)]
struct Draft {
    entries: BTreeMap<Key, u8>,
    masks: [Option<u8>; 2],
    /// Whether somebody said what the mask is to be, or that there is to be none.
    is_mask_touched: [bool; 2],
    is_touched: [bool; 2],
}

impl Draft {
    /// With what a client says.
    fn of(entries: &[AclEntry]) -> Result<Self, FilesError> {
        check_entries(entries)?;
        let mut draft = Self::default();
        for entry in entries {
            let scope = usize::from(entry.is_default);
            draft.is_touched[scope] = true;
            draft.is_mask_touched[scope] |= entry.kind == AclKind::Mask;
            draft.keep(entry);
        }
        Ok(draft)
    }

    fn keep(&mut self, entry: &AclEntry) {
        if entry.kind == AclKind::Mask {
            self.masks[usize::from(entry.is_default)] = Some(entry.bits);
        } else {
            self.entries.insert(key(entry), entry.bits);
        }
    }

    /// The whole list.
    fn done(mut self) -> Result<Vec<AclEntry>, FilesError> {
        if self.entries.keys().any(|(is_default, ..)| *is_default) {
            self.copy_to_default();
        }
        for is_default in SCOPES {
            if let Some(mask) = self.mask(is_default)? {
                self.entries.insert((is_default, AclKind::Mask, None), mask);
            }
            self.check(is_default)?;
        }
        let entry = |((is_default, kind, name), bits)| AclEntry { is_default, kind, name, bits };
        Ok(self.entries.into_iter().map(entry).collect())
    }

    /// What the default entries lack is as it is in the directory.
    fn copy_to_default(&mut self) {
        for kind in REQUIRED {
            if let Some(bits) = self.entries.get(&(false, kind, None)).copied() {
                self.entries.entry((true, kind, None)).or_insert(bits);
            }
        }
    }

    /// The mask: as somebody said, as it was where nothing else changed, or what all entries together allow.
    fn mask(&self, is_default: bool) -> Result<Option<u8>, FilesError> {
        let scope = usize::from(is_default);
        let entries = || self.entries.iter().filter(|((other, ..), _)| *other == is_default);
        if entries().next().is_none() {
            return Ok(None);
        }
        let is_needed = entries().any(|((.., name), _)| name.is_some());
        let (mask, is_said) = (self.masks[scope], self.is_mask_touched[scope]);
        if mask.is_none() && is_needed && is_said {
            return Err(refused("Invalid ACL: mask is required and cannot be deleted."));
        }
        if mask.is_some() && (is_said || !self.is_touched[scope]) {
            return Ok(mask);
        }
        let is_masked = |(_, kind, name): &Key| *kind == AclKind::Group || name.is_some();
        let union = entries().filter(|(key, _)| is_masked(key)).fold(0, |all, (_, bits)| all | bits);
        Ok((is_needed || mask.is_some()).then_some(union))
    }

    fn check(&self, is_default: bool) -> Result<(), FilesError> {
        let (scope, what) = if is_default { ("default", "default ACL") } else { ("access", "ACL") };
        let count = self.entries.keys().filter(|(other, ..)| *other == is_default).count();
        if count > ENTRIES_MAX {
            let words =
                format!("Invalid ACL: ACL has {count} {scope} entries, which exceeds maximum of {ENTRIES_MAX}.");
            return Err(refused(words));
        }
        let lacks = |kind: AclKind| !self.entries.contains_key(&(is_default, kind, None));
        if (count > 0 || !is_default) && REQUIRED.into_iter().any(lacks) {
            return Err(refused(format!("Invalid {what}: the user, group and other entries are required.")));
        }
        Ok(())
    }
}

/// Whether a client's entries can be entries of a list.
fn check_entries(entries: &[AclEntry]) -> Result<(), FilesError> {
    if entries.len() > 2 * ENTRIES_MAX {
        let count = entries.len();
        return Err(refused(format!("Invalid ACL: expected {} entries at most, came {count}.", 2 * ENTRIES_MAX)));
    }
    for (at, entry) in entries.iter().enumerate() {
        if entries[..at].iter().any(|other| key(other) == key(entry)) {
            return Err(refused("Invalid ACL: multiple entries with same scope, type and name."));
        }
        let Some(name) = &entry.name else { continue };
        if matches!(entry.kind, AclKind::Mask | AclKind::Other) {
            return Err(refused(format!("Invalid ACL: this entry type must not have a name: {name}.")));
        }
        if name.len() > NAME_MAX {
            let length = name.len();
            return Err(refused(format!("Invalid ACL: expected a name of at most {NAME_MAX} bytes, came {length}.")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as `setfacl` writes them.
    fn entries(text: &str) -> Vec<AclEntry> {
        let entry = |text: &str| {
            let (is_default, text) = text.strip_prefix("default:").map_or((false, text), |text| (true, text));
            let parts: Vec<&str> = text.split(':').collect();
            let kind = match parts[0] {
                "user" => AclKind::User,
                "group" => AclKind::Group,
                "mask" => AclKind::Mask,
                _ => AclKind::Other,
            };
            let bits = parts.get(2).map_or(0, |bits| bits.bytes().fold(0, |all, bit| all << 1 | u8::from(bit != b'-')));
            AclEntry { is_default, kind, name: Some(parts[1]).filter(|name| !name.is_empty()).map(Into::into), bits }
        };
        text.split(',').filter(|text| !text.is_empty()).map(entry).collect()
    }

    /// Entries as [`entries`] takes them.
    fn text(entries: &[AclEntry]) -> String {
        let entry = |entry: &AclEntry| {
            let scope = if entry.is_default { "default:" } else { "" };
            let kind = match entry.kind {
                AclKind::User => "user",
                AclKind::Group => "group",
                AclKind::Mask => "mask",
                AclKind::Other => "other",
            };
            let bit = |(bit, symbol): (u8, char)| if entry.bits & bit == 0 { '-' } else { symbol };
            let bits: String = [(4, 'r'), (2, 'w'), (1, 'x')].map(bit).iter().collect();
            format!("{scope}{kind}:{}:{bits}", entry.name.as_deref().unwrap_or_default())
        };
        entries.iter().map(entry).collect::<Vec<_>>().join(",")
    }

    fn edit(kept: &str, mode: u16, edit: &AclEdit) -> Result<(String, u16), String> {
        let (kept, mode) = edited(&entries(kept), mode, edit, true).map_err(|error| error.message)?;
        Ok((text(&kept), mode))
    }

    fn modify(kept: &str, mode: u16, with: &str) -> Result<(String, u16), String> {
        edit(kept, mode, &AclEdit::Modify(entries(with)))
    }

    fn remove(kept: &str, mode: u16, which: &str) -> Result<(String, u16), String> {
        edit(kept, mode, &AclEdit::Remove(entries(which)))
    }

    fn ok(kept: &str, mode: u16) -> Result<(String, u16), String> {
        Ok((kept.to_owned(), mode))
    }

    #[test]
    fn the_mask_is_what_all_entries_allow_unless_somebody_says_it() {
        assert_eq!(modify("", 0o640, "user:ann:rw-"), ok("user:ann:rw-,group::r--", 0o660));
        let list = "user:ann:rw-,group::r--";
        assert_eq!(modify(list, 0o660, "mask::r--"), ok(list, 0o640), "it is said");
        assert_eq!(modify(list, 0o640, "group:staff:r-x"), ok("user:ann:rw-,group::r--,group:staff:r-x", 0o670));
        assert_eq!(modify(list, 0o640, "default:user:ann:rwx").unwrap().1, 0o640, "it stays where nothing changed");
        assert_eq!(remove("user:ann:rw-,group::r--,group:staff:r-x", 0o670, "group:staff"), ok(list, 0o660));
        let refused = remove(list, 0o660, "mask:").unwrap_err();
        assert!(refused.contains("mask is required"), "{refused}");
    }

    #[test]
    fn without_named_entries_the_mask_stays_until_it_is_removed() {
        assert_eq!(remove("user:ann:rw-,group::r--", 0o660, "user:ann"), ok("group::r--", 0o640));
        assert_eq!(remove("user:ann:rw-,group::r--", 0o660, "user:ann,mask:"), ok("", 0o640));
        assert_eq!(edit("user:ann:rwx,group::r--", 0o1770, &AclEdit::Clear), ok("", 0o1740));
        assert_eq!(edit("user:ann:rwx,group::r--", 0o770, &AclEdit::Replace(Vec::new())), ok("", 0o740));
    }

    #[test]
    fn default_entries_that_are_missing_are_as_in_the_directory() {
        let (kept, mode) = modify("", 0o750, "default:user:ann:rwx").unwrap();
        let default = "default:user::rwx,default:user:ann:rwx,default:group::r-x,default:mask::rwx,default:other::---";
        assert_eq!((&*kept, mode), (default, 0o750));
        assert_eq!(edit(&kept, mode, &AclEdit::RemoveDefault), ok("", 0o750));
        let file = edited(&[], 0o640, &AclEdit::Modify(entries("default:user:ann:rwx")), false).unwrap_err();
        assert_eq!((file.class, file.message.contains("only directories")), (Class::Acl, true));
    }

    #[test]
    fn a_list_is_replaced_where_something_is_said() {
        let both = "user:ann:rw-,group::r--,default:user::rwx,default:group::r-x,default:other::---";
        let replace = |with: &str| edit(both, 0o660, &AclEdit::Replace(entries(with)));
        let access = "user::rwx,user:bob:r--,group::---,other::--x";
        let default = "default:user::rwx,default:group::r-x,default:other::---";
        assert_eq!(replace(access), ok(&format!("user:bob:r--,group::---,{default}"), 0o741));
        assert_eq!(replace("default:user:bob:r--").unwrap().1, 0o660);
        assert!(replace("user:bob:r--").unwrap_err().contains("are required"));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (with, why) in [
            ("user:ann:r--,user:ann:rw-", "multiple entries"),
            ("mask:ann:r--", "must not have a name"),
            ("other:ann:r--", "must not have a name"),
        ] {
            let refused = modify("", 0o640, with).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let many = |count: usize| (0..count).map(|user| format!("user:u{user}:r--")).collect::<Vec<_>>().join(",");
        assert!(modify("", 0o640, &many(28)).is_ok());
        assert!(modify("", 0o640, &many(29)).unwrap_err().contains("exceeds maximum of 32"));
        let long = modify("", 0o640, &format!("user:{}:r--", "a".repeat(1_025))).unwrap_err();
        assert!(long.contains("at most 1024 bytes"), "{long}");
    }

    #[test]
    fn what_is_made_has_the_default_entries_as_far_as_its_mode_allows() {
        let default = "default:user::rwx,default:user:ann:rwx,default:group::r-x,default:mask::rwx,default:other::r-x";
        let of = |list: &str, modes, is_directory| {
            let (kept, mode) = inherited(&entries(list), modes, is_directory);
            (text(&kept), mode)
        };
        let modes = |masked, unmasked| Modes { masked, unmasked };
        let own = "user:ann:rwx,group::r-x";
        assert_eq!(of(default, modes(0o644, None), false), (own.to_owned(), 0o644));
        assert_eq!(of(default, modes(0o644, Some(0o666)), false), (own.to_owned(), 0o664), "no mask of a process");
        assert_eq!(of(default, modes(0o755, Some(0o777)), true), (format!("{own},{default}"), 0o775));
        let minimal = "default:user::rw-,default:group::rw-,default:other::---";
        assert_eq!(of(minimal, modes(0o640, None), false), (String::new(), 0o640));
        assert_eq!(of(minimal, modes(0o1777, None), true), (minimal.to_owned(), 0o1660));
        assert_eq!(of("user:ann:rwx,group::r-x", modes(0o644, Some(0o666)), false), (String::new(), 0o644));
    }
}
