//! Ends a file. A data node's report of the last block may come a moment after the call of the client, which asks again only 400 ms later.

use std::sync::Arc;
use std::time::Duration;

use savanna_files_host::{Answer, Class, Reply, Request, Unanswered};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::client::{Asked, written};
use super::{Peer, Service, message, named, replies, unanswered};
use crate::ipc::connection::Answerer;
use crate::wire::client::Complete;

/// How long a report is waited for before the client hears that not all of its file was reported.
pub(crate) const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 4_000 } else { 50 });

impl Asked<'_> {
    /// It is done on this thread; who has to wait is a task.
    pub(super) fn complete(self) {
        let Self { service, peer, body, answerer } = self;
        let Some((Complete { path, client, last, file }, answerer)) = message(body, answerer) else { return };
        let last = last.as_ref().map(named);
        let request = Request::Complete { file: written(path, client, file), last };
        let (at, to, again) = (Arc::clone(service), Arc::clone(peer), request.clone());
        service.ask(peer, None, &request, move |answer| match (answer, last) {
            (Ok(Reply::Bool(false)), Some(last)) => {
                let waiting = Arc::clone(&at);
                at.runtime.spawn(async move {
                    let reported = waiting.files.wait_for(last.id);
                    let deadline = Instant::now() + PATIENCE;
                    loop {
                        let mut report = std::pin::pin!(reported.report());
                        // What comes while it is asked is heard, too.
                        report.as_mut().enable();
                        let Some(mut answer) = ask(&waiting, &to, &again).await else { return };
                        // It asks again, as after the first answer.
                        if matches!(&answer, Err(Unanswered::Refused(error)) if error.class == Class::Retriable) {
                            answer = Ok(Reply::Bool(false));
                        }
                        let is_over = Instant::now() >= deadline;
                        if answer != Ok(Reply::Bool(false)) || is_over {
                            return tell(&waiting, &to, answer, answerer);
                        }
                        // Late or not, it is asked once more.
                        let _ = timeout_at(deadline, report).await;
                    }
                });
            }
            (answer, _) => tell(&at, &to, answer, answerer),
        });
    }
}

/// Asks, and waits for the answer; none if nobody may be told anything.
async fn ask(service: &Arc<Service>, peer: &Arc<Peer>, request: &Request) -> Option<Answer> {
    let (sender, receiver) = oneshot::channel();
    // Who waits is there.
    service.ask(peer, None, request, move |answer| drop(sender.send(answer)));
    receiver.await.ok()
}

fn tell(service: &Arc<Service>, peer: &Arc<Peer>, answer: Answer, answerer: Answerer) {
    match answer {
        Ok(reply) => replies::answer(service, peer, reply, answerer),
        Err(why) => unanswered(&why, answerer),
    }
}
