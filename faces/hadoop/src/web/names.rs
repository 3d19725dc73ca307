//! What needs no bytes of blocks.

use bytes::Bytes;
use hyper::StatusCode;
use savanna_files_host::change::Usage;
use savanna_files_host::request::{Listing, Status};
use savanna_files_host::{Class, FilesError, Reply, Request, Statistics, Summary};
use serde_json::Value;
use tokio::sync::oneshot;

use super::answer::{self, Answered, Parts, Refusal};
use super::request::{Shown, Work};
use super::{Client, shown, unexpected};
use crate::protocol::policies;

/// Trashes that are shown at once.
const TRASHES_MAX: usize = 10_000;
/// Where users are at home.
const HOMES: &str = "/user";

impl Client {
    /// Does it, and says what came of it.
    pub(super) async fn names(&self, path: &str, work: Work) -> Answered {
        let value = match work {
            Work::Ask(request, shown) => return self.asked(path, request, shown).await,
            Work::List => return self.list(path).await,
            Work::Summary => shown::summary(&self.summary("contentSummary", path).await?),
            Work::QuotaUsage => match self.ask(Request::Quota { path: path.to_owned() }).await? {
                Reply::Quota(Some(quota)) => shown::quota_usage(quota.used, Some(quota)),
                _ => {
                    let Summary { files, directories, space, quota, .. } = self.summary("quotaUsage", path).await?;
                    shown::quota_usage(Usage { names: files.saturating_add(directories), space }, quota)
                }
            },
            Work::Home => shown::under("Path", self.home()),
            Work::TrashRoot => shown::under("Path", trash_of(&self.peer.user)),
            Work::TrashRoots { of_all } => shown::under("Paths", self.trash_roots(of_all).await?),
            Work::Defaults => shown::defaults(&self.service),
            Work::Policies => shown::policies(),
            Work::Policy => match self.ask(Request::FileInfo { path: path.to_owned() }).await? {
                Reply::Status(Some(status)) => shown::policy_of(status.policy),
                _ => return Err(policies::nothing_at(path).into()),
            },
            Work::Space => shown::space(self.statistics().await?.stats.all()),
            Work::Data(..) => return Err(unexpected()),
        };
        Ok(answer::json(&value))
    }

    async fn asked(&self, path: &str, request: Request, shown: Shown) -> Answered {
        let value = match (self.ask(request).await?, shown) {
            (_, Shown::Nothing) => return Ok(answer::empty(StatusCode::OK)),
            (Reply::Bool(done), Shown::Boolean) => shown::under("boolean", done),
            (Reply::Status(Some(status)), Shown::Status) => shown::under("FileStatus", shown::status(&status)),
            (Reply::Status(None), Shown::Status) => return Err(FilesError::no_file(path).into()),
            (Reply::Listing(Some(listing)), Shown::Page) => shown::page(&listing.entries, listing.remaining),
            (Reply::Listing(None), Shown::Page) => return Err(no_directory(path).into()),
            (Reply::Blocks(located), Shown::Blocks) => self.places().blocks(&located),
            (Reply::Blocks(located), Shown::Places) => self.places().places(&located),
            (Reply::Attributes(attributes), Shown::Attributes(encoding)) => shown::attributes(&attributes, encoding),
            (Reply::Attributes(attributes), Shown::AttributeNames) => shown::attribute_names(&attributes),
            (Reply::Acl(list), Shown::Acl) => shown::access_list(&list),
            _ => return Err(unexpected()),
        };
        Ok(answer::json(&value))
    }

    fn places(&self) -> shown::Places<'_> {
        shown::Places::of(&self.service, &self.peer)
    }

    /// What is at a path.
    pub(super) async fn status(&self, path: &str) -> Result<Box<Status>, Refusal> {
        match self.ask(Request::FileInfo { path: path.to_owned() }).await? {
            Reply::Status(Some(status)) => Ok(status),
            _ => Err(FilesError::no_file(path).into()),
        }
    }

    async fn statistics(&self) -> Result<Statistics, Refusal> {
        let (sender, told) = oneshot::channel();
        self.service.statistics(&self.peer, move |statistics| drop(sender.send(statistics)));
        Ok(told.await.map_err(|_| Refusal::Gone)??)
    }

    async fn summary(&self, command: &'static str, path: &str) -> Result<Summary, Refusal> {
        let (sender, summary) = oneshot::channel();
        self.service.summary(&self.peer, command, path.to_owned(), move |summary| drop(sender.send(summary)));
        Ok(summary.await.map_err(|_| Refusal::Gone)??)
    }

    /// A part of what is in a directory, behind a name.
    async fn page(&self, path: &str, after: Vec<u8>) -> Result<Listing, Refusal> {
        let request = Request::Listing { path: path.to_owned(), after, with_locations: false };
        match self.ask(request).await? {
            Reply::Listing(Some(listing)) => Ok(listing),
            _ => Err(no_directory(path).into()),
        }
    }

    /// All that is in a directory, a page after the other.
    async fn list(&self, path: &str) -> Answered {
        let first = self.page(path, Vec::new()).await?;
        let (answer, parts) = answer::parts(answer::JSON, None);
        let (client, path) = (self.clone(), path.to_owned());
        tokio::spawn(async move {
            if let Some(parts) = client.list_on(&path, first, parts).await {
                parts.end().await;
            }
        });
        Ok(answer)
    }

    /// Gives a client all pages. Nothing if it does not take all, or they cannot be had.
    async fn list_on(&self, path: &str, first: Listing, parts: Parts) -> Option<Parts> {
        let mut text = "{\"FileStatuses\":{\"FileStatus\":[".to_owned();
        let mut listing = first;
        let mut is_first = true;
        loop {
            for entry in &listing.entries {
                if !std::mem::take(&mut is_first) {
                    text.push(',');
                }
                text.push_str(&shown::status(entry).to_string());
            }
            let last = listing.entries.last().filter(|_| listing.remaining > 0);
            let Some(after) = last.map(|entry| entry.name.to_vec()) else { break };
            if !parts.give(Bytes::from(std::mem::take(&mut text))).await {
                return None;
            }
            listing = match self.page(path, after).await {
                Ok(listing) => listing,
                Err(error) => {
                    tracing::debug!(path, ?error, "a directory is not listed to its end");
                    return None;
                }
            };
        }
        text.push_str("]}}");
        parts.give(Bytes::from(text)).await.then_some(parts)
    }

    fn home(&self) -> String {
        format!("{HOMES}/{}", self.peer.user)
    }

    /// The trash of the user if it is there, or of all users whose trash is there.
    async fn trash_roots(&self, of_all: bool) -> Result<Value, Refusal> {
        let mut found = Vec::new();
        if !of_all {
            found.extend(self.trash(&self.peer.user).await?);
        }
        let mut after = of_all.then(Vec::new);
        while let Some(behind) = after.take() {
            let listing = match self.page(HOMES, behind).await {
                Ok(listing) => listing,
                Err(Refusal::Refused(error)) if error.class == Class::FileNotFound => break,
                Err(why) => return Err(why),
            };
            after = listing.entries.last().filter(|_| listing.remaining > 0).map(|entry| entry.name.to_vec());
            for entry in listing.entries.iter().filter(|entry| entry.is_directory) {
                found.extend(self.trash(&String::from_utf8_lossy(&entry.name)).await?);
            }
            if found.len() > TRASHES_MAX {
                let words = format!("There are more than {TRASHES_MAX} trashes; list {HOMES} to find them");
                return Err(FilesError::new(Class::Io, words).into());
            }
        }
        Ok(if found.is_empty() { Value::Null } else { Value::Array(found) })
    }

    async fn trash(&self, user: &str) -> Result<Option<Value>, Refusal> {
        let path = trash_of(user);
        match self.ask(Request::FileInfo { path: path.clone() }).await? {
            Reply::Status(Some(status)) => Ok(Some(shown::trash(&path, &status))),
            _ => Ok(None),
        }
    }
}

fn trash_of(user: &str) -> String {
    format!("{HOMES}/{user}/.Trash")
}

fn no_directory(path: &str) -> FilesError {
    FilesError::new(Class::FileNotFound, format!("File {path} does not exist."))
}
