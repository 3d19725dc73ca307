//! `getBatchedListing`: what is in several directories, a page over all of them.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use prost::Message;
use savanna_files_host::{Answer, Class, FilesError, Reply, Request, Unanswered};
use tokio::sync::oneshot;

use super::client::Asked;
use super::replies::Encoder;
use super::{Peer, Service, message, refuse};
use crate::exception;
use crate::wire::admin::{BatchedKey, BatchedListing, BatchedPart, GetBatchedListing, RemoteException};

/// Directories of one call.
const PATHS_MAX: usize = 100;
/// Entries of an answer after which no other directory is begun.
const ENTRIES: usize = 1_000;

impl Asked<'_> {
    pub(super) fn batched_listing(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((asked, answerer)) = message::<GetBatchedListing>(body, answerer) else { return };
        let begin = match begin(&asked) {
            Ok(begin) => begin,
            Err(error) => return refuse(&error, answerer),
        };
        let (at, peer) = (Arc::clone(service), Arc::clone(peer));
        service.runtime.spawn(async move {
            // Dropped, it ends the connection.
            if let Some(listing) = listed(&at, &peer, &asked, begin).await {
                answerer.done(&listing);
            }
        });
    }
}

/// Where a call goes on: at which path, and behind which name in it.
fn begin(asked: &GetBatchedListing) -> Result<(usize, Vec<u8>), FilesError> {
    let refused = |words| Err(FilesError::new(Class::IllegalArgument, words));
    if asked.paths.len() > PATHS_MAX {
        return refused(format!("Too many source paths ({} > {PATHS_MAX})", asked.paths.len()));
    }
    if asked.after.is_empty() {
        return Ok((0, Vec::new()));
    }
    match BatchedKey::decode(&*asked.after) {
        Ok(BatchedKey { sum, path, after }) if sum == sum_of(&asked.paths) => {
            // Behind what was no directory comes the next path.
            let path = path as usize + usize::from(after.is_empty());
            Ok((path, after))
        }
        _ => refused("expected the place in these paths that the answer before has named, came another".to_owned()),
    }
}

/// What knows paths again.
fn sum_of(paths: &[String]) -> Vec<u8> {
    let mut md5 = Md5::new();
    for path in paths {
        md5.update((path.len() as u64).to_be_bytes());
        md5.update(path);
    }
    md5.finalize().to_vec()
}

/// A page. Nothing if nobody may be told anything.
async fn listed(
    service: &Arc<Service>,
    peer: &Arc<Peer>,
    asked: &GetBatchedListing,
    (first, mut after): (usize, Vec<u8>),
) -> Option<BatchedListing> {
    let encoder = Encoder::new(service, peer);
    let (mut parts, mut count) = (Vec::new(), 0);
    for (at, path) in asked.paths.iter().enumerate().skip(first) {
        let request = Request::Listing {
            path: path.clone(),
            after: std::mem::take(&mut after),
            with_locations: asked.with_locations,
        };
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        let refused = |error: &FilesError| BatchedPart {
            entries: Vec::new(),
            path: number,
            refusal: Some(RemoteException {
                class: exception::class(error.class).to_owned(),
                message: Some(error.message.clone()),
            }),
        };
        // Where it goes on if this was not all: behind a name, or with the next path.
        let mut behind = None;
        parts.push(match ask(service, peer, &request).await {
            Ok(Reply::Listing(Some(listing))) => {
                count += listing.entries.len();
                if listing.remaining > 0 {
                    behind = listing.entries.last().map(|entry| entry.name.to_vec());
                }
                let entries = listing.entries.into_iter().map(|entry| encoder.status(entry)).collect();
                BatchedPart { entries, path: number, refusal: None }
            }
            Ok(_) => refused(&FilesError::new(Class::FileNotFound, format!("Path {path} does not exist"))),
            Err(Unanswered::Refused(error)) => refused(&error),
            Err(Unanswered::Gone) => return None,
        });
        let is_last = at + 1 == asked.paths.len();
        if behind.is_some() || count >= ENTRIES && !is_last {
            let key = BatchedKey { sum: sum_of(&asked.paths), path: number, after: behind.unwrap_or_default() };
            return Some(BatchedListing { parts, has_more: true, after: key.encode_to_vec() });
        }
    }
    Some(BatchedListing { parts, has_more: false, after: Vec::new() })
}

async fn ask(service: &Arc<Service>, peer: &Arc<Peer>, request: &Request) -> Answer {
    let (sender, answer) = oneshot::channel();
    service.ask(peer, None, request, move |outcome| drop(sender.send(outcome)));
    answer.await.unwrap_or(Err(Unanswered::Gone))
}
