//! Extended attributes, and storage policies: what is kept for clients, and means nothing here.

use super::Outcome;
use crate::cache::View;
use crate::change::{Attribute, AttributeSpace, RetryAnswer};
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::request::{Context, Reply};
use crate::tree::Inode;

/// The most that an inode has.
const ATTRIBUTES_MAX: usize = 32;
/// The most bytes of a name and its value.
const BYTES_MAX: usize = 16_384;

/// Sets an attribute, which is new or replaces another, as the client allows.
pub(super) fn set_attribute(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    attribute: &Attribute,
    (creates, replaces): (bool, bool),
) -> Result<Outcome, FilesError> {
    let refused = |class, words: String| Err(FilesError::new(class, words));
    let shown = name(attribute.space, &attribute.name);
    if !creates && !replaces {
        return refused(Class::IllegalArgument, "A flag must be specified.".to_owned());
    }
    let size = attribute.name.len() + attribute.value.len();
    if size > BYTES_MAX {
        let words = format!(
            "The XAttr is too big. The maximum combined size of the name and value is {BYTES_MAX}, but the total size is {size}"
        );
        return refused(Class::IllegalArgument, words);
    }
    let inode = changed(namespace, context, path, (attribute.space, &attribute.name))?;
    let place = place(inode, (attribute.space, &attribute.name));
    if place.is_ok() && !replaces {
        return refused(Class::Io, format!("XAttr: {shown} already exists. The REPLACE flag must be specified."));
    }
    if place.is_err() && !creates {
        return refused(Class::Io, format!("XAttr: {shown} does not exist. The CREATE flag must be specified."));
    }
    if place.is_err() && of(inode).len() >= ATTRIBUTES_MAX {
        let words = format!("Cannot add additional XAttr to inode, would exceed limit of {ATTRIBUTES_MAX}");
        return refused(Class::Io, words);
    }
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).edit(|more| match place {
        Ok(at) => more.attributes[at] = attribute.clone(),
        Err(at) => more.attributes.insert(at, attribute.clone()),
    });
    Ok(Outcome::changed(draft, context.call, Reply::Done, RetryAnswer::Done))
}

/// Removes an attribute.
pub(super) fn remove_attribute(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    (space, attribute): (AttributeSpace, &str),
) -> Result<Outcome, FilesError> {
    let inode = changed(namespace, context, path, (space, attribute))?;
    let Ok(at) = place(inode, (space, attribute)) else {
        let words = "No matching attributes found for remove operation";
        return Err(FilesError::new(Class::Io, words));
    };
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).edit(|more| drop(more.attributes.remove(at)));
    Ok(Outcome::changed(draft, context.call, Reply::Done, RetryAnswer::Done))
}

/// Attributes with their values: those that are asked for, or all that the user may see.
pub(super) fn attributes(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    names: &[(AttributeSpace, String)],
) -> Result<Outcome, FilesError> {
    for (space, attribute) in names {
        check_space(*space, attribute, context)?;
    }
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check(&namespace.tree, inode, Access::READ, context)?;
    let found = if names.is_empty() {
        seen(inode, context).cloned().collect()
    } else {
        let named = |(space, attribute): &(AttributeSpace, String)| {
            let at = place(inode, (*space, attribute))
                .map_err(|_| FilesError::new(Class::Io, "At least one of the attributes provided was not found."))?;
            Ok::<_, FilesError>(of(inode)[at].clone())
        };
        names.iter().map(named).collect::<Result<_, _>>()?
    };
    Ok(Outcome::Read(Reply::Attributes(found), at.depends))
}

/// The names of the attributes that the user may see, with no values.
pub(super) fn attribute_names(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let unvalued = |attribute: &Attribute| Attribute { value: Box::default(), ..attribute.clone() };
    let names = seen(at.existing()?, context).map(unvalued).collect();
    Ok(Outcome::Read(Reply::Attributes(names), at.depends))
}

/// Sets on what blocks of an inode, and of what is in it, should be; without a policy as its directory says.
pub(super) fn set_policy(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    policy: Option<u8>,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let Some(inode) = at.inode() else {
        return Err(FilesError::new(Class::FileNotFound, format!("File/Directory does not exist: {path}")));
    };
    permission::check(&namespace.tree, inode, Access::WRITE, context)?;
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).edit(|more| more.policy = policy);
    Ok(Outcome::repeatable(draft, Reply::Done))
}

/// An inode of which an attribute is to be changed.
fn changed<'t>(
    namespace: &'t View<'_>,
    context: &Context<'_>,
    path: &str,
    (space, attribute): (AttributeSpace, &str),
) -> Result<&'t Inode, FilesError> {
    check_space(space, attribute, context)?;
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    if space == AttributeSpace::User {
        // Where everybody may write, attributes are the owner's all the same.
        if inode.is_directory() && inode.mode() & 0o1000 != 0 {
            permission::check_owner(&namespace.tree, inode, context)?;
        } else {
            permission::check(&namespace.tree, inode, Access::WRITE, context)?;
        }
    }
    Ok(inode)
}

fn of(inode: &Inode) -> &[Attribute] {
    inode.more.as_ref().map_or(&[], |more| &more.attributes)
}

/// Where an attribute is, or would be.
fn place(inode: &Inode, (space, name): (AttributeSpace, &str)) -> Result<usize, usize> {
    of(inode).binary_search_by(|other| (other.space, &*other.name).cmp(&(space, name)))
}

/// The attributes that a user may see.
fn seen<'a>(inode: &'a Inode, context: &'a Context<'_>) -> impl Iterator<Item = &'a Attribute> {
    of(inode).iter().filter(|attribute| may_see(attribute.space, context))
}

fn may_see(space: AttributeSpace, context: &Context<'_>) -> bool {
    match space {
        AttributeSpace::User => true,
        AttributeSpace::Trusted => context.is_superuser,
        AttributeSpace::Security | AttributeSpace::System | AttributeSpace::Raw => false,
    }
}

fn check_space(space: AttributeSpace, attribute: &str, context: &Context<'_>) -> Result<(), FilesError> {
    if attribute.is_empty() {
        return Err(FilesError::new(Class::IllegalArgument, "XAttr name cannot be empty."));
    }
    if may_see(space, context) {
        return Ok(());
    }
    let words = format!("User doesn't have permission for xattr: {}", name(space, attribute));
    Err(FilesError::new(Class::AccessControl, words))
}

/// An attribute as clients write it.
fn name(space: AttributeSpace, attribute: &str) -> String {
    let space = match space {
        AttributeSpace::User => "user",
        AttributeSpace::Trusted => "trusted",
        AttributeSpace::Security => "security",
        AttributeSpace::System => "system",
        AttributeSpace::Raw => "raw",
    };
    format!("{space}.{attribute}")
}
