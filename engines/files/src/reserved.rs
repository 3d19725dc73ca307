//! `/.reserved/.inodes/N`: what has a number, whatever it is called now.

use std::borrow::Cow;

use crate::cache::View;
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::path_in;
use crate::request::{Create, Request, Written};

/// How such a path begins.
const PREFIX: &str = "/.reserved/.inodes/";

/// All paths of a request, each as what the request has: to be read or to be changed.
macro_rules! paths {
    ($request:expr) => {{
        let (path, other, sources) = match $request {
            Self::FileInfo { path }
            | Self::LocatedInfo { path }
            | Self::OpenFiles { path, .. }
            | Self::Listing { path, .. }
            | Self::BlockLocations { path, .. }
            | Self::Mkdirs { path, .. }
            | Self::Create(Create { path, .. })
            | Self::Append { path, .. }
            | Self::Truncate { path, .. }
            | Self::AddBlock { file: Written { path, .. }, .. }
            | Self::AbandonBlock { file: Written { path, .. }, .. }
            | Self::Complete { file: Written { path, .. }, .. }
            | Self::Fsync { file: Written { path, .. }, .. }
            | Self::GiveUp { file: Written { path, .. } }
            | Self::Delete { path, .. }
            | Self::SetPermission { path, .. }
            | Self::SetOwner { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetReplication { path, .. }
            | Self::SetQuota { path, .. }
            | Self::Quota { path }
            | Self::SetAttribute { path, .. }
            | Self::RemoveAttribute { path, .. }
            | Self::Attributes { path, .. }
            | Self::AttributeNames { path }
            | Self::EditAcl { path, .. }
            | Self::Acl { path }
            | Self::SetPolicy { path, .. }
            | Self::IsFileClosed { path }
            | Self::PreferredBlockSize { path }
            | Self::CheckAccess { path, .. } => (Some(path), None, None),
            Self::Rename { from, to } | Self::Rename2 { from, to, .. } => (Some(from), Some(to), None),
            Self::Concat { path, sources } => (Some(path), None, Some(sources)),
            Self::NewStamp { .. } | Self::UpdatePipeline { .. } => (None, None, None),
        };
        path.into_iter().chain(other).chain(sources.into_iter().flatten())
    }};
}

impl Request {
    fn paths(&self) -> impl Iterator<Item = &String> {
        paths!(self)
    }

    fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        paths!(self)
    }
}

impl View<'_> {
    /// A request with names where it has numbers; nothing if it has none.
    pub(crate) fn named_request(&self, request: &Request) -> Result<Option<Request>, FilesError> {
        if !request.paths().any(|path| path.starts_with(PREFIX)) {
            return Ok(None);
        }
        let mut named = request.clone();
        for path in named.paths_mut() {
            if let Cow::Owned(names) = self.named_path(path)? {
                *path = names;
            }
        }
        Ok(Some(named))
    }

    /// The names of a path, which may begin with the number of an inode.
    pub(crate) fn named_path<'p>(&self, path: &'p str) -> Result<Cow<'p, str>, FilesError> {
        let Some(rest) = path.strip_prefix(PREFIX) else { return Ok(Cow::Borrowed(path)) };
        let (number, below) = rest.split_once('/').unwrap_or((rest, ""));
        let id = number.parse().map(InodeId).map_err(|_| {
            FilesError::new(Class::FileNotFound, format!("Invalid inode path: {path}; expected a number of an inode"))
        })?;
        let found = self.tree.get(id).and_then(|inode| match below {
            // Who goes up from the root stays there.
            ".." if id != InodeId::ROOT => path_in(&self.tree, inode.parent),
            _ => path_in(&self.tree, id),
        });
        let mut found = found.ok_or_else(|| {
            let words = format!("File for given inode path does not exist: {path}");
            FilesError::new(Class::FileNotFound, words)
        })?;
        if !below.is_empty() && below != ".." {
            if found != "/" {
                found.push('/');
            }
            found.push_str(below);
        }
        Ok(Cow::Owned(found))
    }
}
