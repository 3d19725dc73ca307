//! Asks the owner of keys for an actor that has none: where to ask, what to ask again, and when to give up.
//!
//! ```text
//!  idle ── depart ──► away ── answered ─────────────────────────────► idle
//!                      ▲ │
//!                      │ ├─ Moved to a higher epoch: ask there, at once
//!                      │ ├─ Frozen, or nothing was done: pause, ask again
//!                      │ └─ may have been done: what only reads again, the rest is told so
//!                      └─┘
//! ```
//!
//! One request is under way at a time; what comes meanwhile joins the next. So the owner hears a session's commands in their order,
//! whatever is asked again, and much that is asked goes in few messages. There is no clock here, and no network.

use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_keys::actor::Asked;
use savanna_keys::actor::message::{Destination, Replies};
use savanna_keys::handle::{HandleError, KeysReply, KeysRequest, Owner};
use savanna_keys::reply::Reply as _;

/// The first pause before it is asked again; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Carries what one actor asks.
#[derive(Debug)]
pub(crate) struct Courier {
    owner: Owner,
    /// How long it is asked again before clients are told that it was in vain.
    patience: Duration,
    flight: Option<Flight>,
}

/// What is being asked.
#[derive(Debug)]
struct Flight {
    request: Arc<KeysRequest>,
    /// Where the reply to each part goes.
    to: Vec<Destination>,
    since: Duration,
    pause: Duration,
    /// When to ask again; `None` while it is away.
    due: Option<Duration>,
}

impl Courier {
    /// Asks `owner` until it is heard that there is another one.
    pub(crate) const fn new(owner: Owner, patience: Duration) -> Self {
        Self { owner, patience, flight: None }
    }

    /// What to ask now, and of whom. `next` is taken if nothing is under way.
    pub(crate) fn depart(
        &mut self,
        now: Duration,
        next: impl FnOnce() -> Option<Asked>,
    ) -> Option<(NodeId, Arc<KeysRequest>)> {
        if self.flight.is_none() {
            let Asked { request, to } = next()?;
            let request = Arc::new(request);
            self.flight = Some(Flight { request, to, since: now, pause: PAUSE_MIN, due: Some(now) });
        }
        let flight = self.flight.as_mut()?;
        flight.due.take_if(|due| *due <= now)?;
        Some((self.owner.node.clone(), Arc::clone(&flight.request)))
    }

    /// When to depart again, if that does not depend on an answer.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.flight.as_ref()?.due
    }

    /// Hears what became of what was asked. Gives what clients are to be told.
    pub(crate) fn hear(&mut self, now: Duration, outcome: Result<KeysReply, HandleError>) -> Replies {
        let mut replies = Replies::default();
        let Some(mut flight) = self.flight.take() else { return replies };
        let refused = flight.sort(outcome, &mut replies);
        let Some(why) = refused else { return replies };
        if now.saturating_sub(flight.since) >= self.patience {
            flight.give_up(&why, &mut replies);
            return replies;
        }
        let pause = match why {
            HandleError::Moved { to, epoch } if self.learn(&to, epoch) => Duration::ZERO,
            HandleError::Frozen { retry_after_ms } => Duration::from_millis(retry_after_ms).clamp(PAUSE_MIN, PAUSE_MAX),
            _ => {
                let pause = flight.pause;
                flight.pause = (pause * 2).min(PAUSE_MAX);
                pause
            }
        };
        flight.due = Some(now + pause);
        self.flight = Some(flight);
        replies
    }

    /// Hears who owns the keys. Says whether that is news: a node that is behind may name an owner of before.
    fn learn(&mut self, node: &NodeId, epoch: OwnerEpoch) -> bool {
        let is_news = epoch > self.owner.epoch;
        if is_news {
            self.owner = Owner { node: node.clone(), epoch };
        }
        is_news
    }
}

impl Flight {
    /// Gives away the replies that came, and keeps what is to be asked again. Says why it was not done, if there is such.
    fn sort(&mut self, outcome: Result<KeysReply, HandleError>, replies: &mut Replies) -> Option<HandleError> {
        let mut why = None;
        let mut again = Vec::new();
        let parts = self.request.parts().zip(&self.to).enumerate();
        match outcome {
            Ok(reply) if reply.outcomes().len() == self.to.len() => {
                for ((place, (part, to)), outcome) in parts.zip(reply.outcomes()) {
                    match outcome {
                        Ok(answered) => replies.push(*to, |reply| answered.play(reply)),
                        Err(error) if may_repeat(error, part.only_reads()) => {
                            again.push(place);
                            why.get_or_insert_with(|| error.clone());
                        }
                        Err(error) => replies.push(*to, |reply| reply.error(&unknown(error))),
                    }
                }
            }
            outcome => {
                let error = outcome.err().unwrap_or_else(|| HandleError::Unavailable {
                    reason: "the reply is to another request".to_owned(),
                    may_have_run: true,
                });
                for (place, (part, to)) in parts {
                    if may_repeat(&error, part.only_reads()) {
                        again.push(place);
                    } else {
                        replies.push(*to, |reply| reply.error(&unknown(&error)));
                    }
                }
                why = (!again.is_empty()).then_some(error);
            }
        }
        if again.len() < self.to.len() {
            self.request = Arc::new(self.request.only(&again));
            self.to = again.into_iter().map(|place| self.to[place]).collect();
        }
        why
    }

    /// Tells who still waits that nothing was done.
    fn give_up(&self, why: &HandleError, replies: &mut Replies) {
        for to in &self.to {
            replies.push(*to, |reply| reply.error(&format!("TRYAGAIN nothing was done: {why}")));
        }
    }
}

/// Whether what was refused so may be asked again: nothing was done, or doing it twice does no harm.
const fn may_repeat(error: &HandleError, only_reads: bool) -> bool {
    match error {
        HandleError::Moved { .. } | HandleError::Frozen { .. } => true,
        HandleError::Unavailable { may_have_run, .. } => !*may_have_run || only_reads,
    }
}

fn unknown(error: &HandleError) -> String {
    format!("UNKNOWN whether the command was done: {error}; look before you repeat it")
}

#[cfg(test)]
mod tests {
    use savanna_keys::command::{Command, CommandNumber};
    use savanna_keys::request::OwnedArgs;
    use savanna_keys::session::{SessionId, Ticket};

    use super::*;

    const SESSION: SessionId = SessionId { place: 0, serial: 1 };

    fn asked(commands: &[&[&str]]) -> Asked {
        let mut asked = Asked::default();
        for (number, words) in commands.iter().enumerate() {
            let command = Command::find(words[0].as_bytes()).and_then(CommandNumber::of).expect("a command");
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            asked.request.push(0, command, OwnedArgs::of_words(&words).args());
            asked.to.push(Destination::Session(SESSION, Ticket(number as u64)));
        }
        asked
    }

    fn courier() -> Courier {
        let owner = Owner { node: NodeId::new("a"), epoch: OwnerEpoch(3) };
        Courier::new(owner, Duration::from_secs(1))
    }

    fn told(replies: &Replies) -> Vec<(u64, String)> {
        let ticket = |to| if let Destination::Session(_, Ticket(number)) = to { number } else { u64::MAX };
        replies.iter().map(|(to, part)| (ticket(to), part.to_tape().to_string())).collect()
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn it_goes_where_the_keys_have_gone_and_not_back() {
        let mut courier = courier();
        let (node, _) = courier.depart(at(0), || Some(asked(&[&["incr", "k"]]))).expect("something to ask");
        assert_eq!(node, NodeId::new("a"));
        assert!(courier.depart(at(1), || panic!("one at a time")).is_none());
        let moved = |to: &str, epoch| Err(HandleError::Moved { to: NodeId::new(to), epoch: OwnerEpoch(epoch) });
        assert!(courier.hear(at(2), moved("b", 4)).is_empty());
        assert_eq!(courier.depart(at(2), || None).expect("at once").0, NodeId::new("b"));
        // Its news are older than ours.
        assert!(courier.hear(at(3), moved("a", 3)).is_empty());
        assert!(courier.depart(at(3), || None).is_none());
        assert_eq!(courier.due(), Some(at(8)));
        assert_eq!(courier.depart(at(8), || None).expect("after a pause").0, NodeId::new("b"));
    }

    #[test]
    fn what_was_done_is_told_and_the_rest_is_asked_again_in_order() {
        let mut courier = courier();
        courier.depart(at(0), || Some(asked(&[&["incr", "a"], &["incr", "b"], &["get", "b"]]))).expect("something");
        let mut reply = KeysReply::awaiting(3);
        reply.answer(0, |tape| tape.integer(1));
        reply.refuse(1, HandleError::Frozen { retry_after_ms: 20 });
        reply.refuse(2, HandleError::Frozen { retry_after_ms: 20 });
        assert_eq!(told(&courier.hear(at(0), Ok(reply))), [(0, "1".to_owned())]);
        assert!(courier.depart(at(19), || panic!("behind what is asked again")).is_none());
        let (_, again) = courier.depart(at(20), || None).expect("it is due");
        let commands: Vec<_> = again.parts().flat_map(|part| part.steps()).map(|(command, _)| command.name).collect();
        assert_eq!(commands, ["incr", "get"]);
        let mut reply = KeysReply::awaiting(2);
        reply.answer(0, |tape| tape.integer(1));
        reply.answer(1, |tape| tape.bulk(b"1"));
        assert_eq!(told(&courier.hear(at(21), Ok(reply))), [(1, "1".to_owned()), (2, "\"1\"".to_owned())]);
        assert!(courier.due().is_none() && courier.depart(at(21), || None).is_none());
    }

    #[test]
    fn what_may_have_changed_something_is_not_asked_twice() {
        let mut courier = courier();
        courier.depart(at(0), || Some(asked(&[&["incr", "a"], &["get", "a"]]))).expect("something");
        let lost = HandleError::Unavailable { reason: "the connection broke".to_owned(), may_have_run: true };
        let replies = courier.hear(at(1), Err(lost));
        assert!(matches!(&told(&replies)[..], [(0, text)] if text.starts_with("!UNKNOWN")));
        let (_, again) = courier.depart(at(6), || None).expect("what reads");
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn it_gives_up_when_nobody_answers_for_long() {
        let mut courier = courier();
        courier.depart(at(0), || Some(asked(&[&["incr", "a"]]))).expect("something");
        let mut now = Duration::ZERO;
        let replies = loop {
            let away = HandleError::Unavailable { reason: "nobody listens".to_owned(), may_have_run: false };
            let replies = courier.hear(now, Err(away));
            if !replies.is_empty() {
                break replies;
            }
            now = courier.due().expect("it is asked again");
            assert!(courier.depart(now, || None).is_some());
        };
        assert!(now >= at(1000) && now < at(1600));
        assert!(told(&replies)[0].1.starts_with("!TRYAGAIN"));
        assert!(courier.depart(now, || Some(asked(&[&["get", "b"]]))).is_some(), "the next ones have their own chance");
    }
}
