//! Asks the owner of keys for an actor that does not have them: where to ask, what to ask again, and when to give up.
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
//!
//! Where each node has some of the keys, an actor has a courier for each of its lanes, and where to ask is looked up for each departure
//! ([`savanna_keys::actor::Actor::way_of`]): what `Moved` says is known there a little later. What is about all keys of a node is not asked again: the
//! others have answered theirs.

use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_keys::actor::message::{Destination, Replies};
use savanna_keys::actor::{About, Asked};
use savanna_keys::cluster::owners::PeerId;
use savanna_keys::handle::{HandleError, KeysReply, KeysRequest, Owner};
use savanna_keys::reply::Reply as _;

/// The first pause before it is asked again; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Carries what one actor asks.
#[derive(Debug)]
pub(crate) struct Courier {
    /// Who has the keys; none if each node has some.
    owner: Option<Owner>,
    /// How long it is asked again before clients are told that it was in vain.
    patience: Duration,
    flight: Option<Flight>,
    /// How often it departed.
    departed: u64,
    /// What the parts were about that were answered.
    ended: Vec<About>,
    /// Whether virtual nodes come and go while they are used: then those who have had one say who has it, before the records do.
    may_move: bool,
    /// Owners of virtual nodes that were heard of so.
    moved: Vec<(u16, NodeId, OwnerEpoch)>,
}

/// What is to be asked now.
#[derive(Debug)]
pub(crate) struct Departure {
    /// Of whom, if that is known here.
    pub(crate) to: Option<NodeId>,
    /// What its first part is about.
    pub(crate) about: Option<u16>,
    pub(crate) request: Arc<KeysRequest>,
    /// By which the answer is known.
    pub(crate) number: u64,
}

/// What is being asked.
#[derive(Debug)]
struct Flight {
    request: Arc<KeysRequest>,
    /// Where the reply to each part goes.
    to: Vec<Destination>,
    /// What each part is about.
    about: Vec<About>,
    since: Duration,
    pause: Duration,
    /// When to ask again; `None` while it is away.
    due: Option<Duration>,
    /// Who is being asked, where each node has some of the keys.
    peer: Option<PeerId>,
}

impl Courier {
    /// Asks `owner` until it is heard that there is another one.
    pub(crate) fn new(owner: Owner, patience: Duration) -> Self {
        Self { owner: Some(owner), ..Self::of_lane(patience, false) }
    }

    /// Asks whoever has the keys at each departure.
    pub(crate) const fn of_lane(patience: Duration, may_move: bool) -> Self {
        Self { owner: None, patience, flight: None, departed: 0, ended: Vec::new(), may_move, moved: Vec::new() }
    }

    /// What to ask now. `next` is taken if nothing is under way.
    pub(crate) fn depart(&mut self, now: Duration, next: impl FnOnce() -> Option<Asked>) -> Option<Departure> {
        if self.flight.is_none() {
            let Asked { request, to, about } = next()?;
            let request = Arc::new(request);
            let flight = Flight { request, to, about, since: now, pause: PAUSE_MIN, due: Some(now), peer: None };
            self.flight = Some(flight);
        }
        let flight = self.flight.as_mut()?;
        flight.due.take_if(|due| *due <= now)?;
        flight.peer = None;
        self.departed += 1;
        Some(Departure {
            to: self.owner.as_ref().map(|owner| owner.node.clone()),
            about: flight.about.first().and_then(About::first),
            request: Arc::clone(&flight.request),
            number: self.departed,
        })
    }

    /// Answers what is about all keys of a node that is not the one that is asked now. Gives what is told, and the rest that is to be asked.
    pub(crate) fn shed(&mut self) -> (Replies, Option<Arc<KeysRequest>>) {
        let mut replies = Replies::default();
        let Some(mut flight) = self.flight.take() else { return (replies, None) };
        let (mut rest, mut to, mut about) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (its, of)) in flight.to.drain(..).zip(flight.about.drain(..)).enumerate() {
            if of.first().is_none() {
                replies.push(its, |reply| reply.error("PARTIAL a node did not do its part: it is gone"));
            } else {
                rest.push(place);
                to.push(its);
                about.push(of);
            }
        }
        if rest.is_empty() {
            return (replies, None);
        }
        if rest.len() < flight.request.len() {
            flight.request = Arc::new(flight.request.only(&rest));
        }
        (flight.to, flight.about) = (to, about);
        let request = Arc::clone(&flight.request);
        self.flight = Some(flight);
        (replies, Some(request))
    }

    /// Notes who is being asked.
    pub(crate) const fn note_peer(&mut self, peer: PeerId) {
        if let Some(flight) = &mut self.flight {
            flight.peer = Some(peer);
        }
    }

    /// The number of what is being asked of a node that is gone: nobody answers it.
    pub(crate) fn in_vain(&self, is_gone: impl FnOnce(PeerId) -> bool) -> Option<u64> {
        let flight = self.flight.as_ref().filter(|flight| flight.due.is_none())?;
        flight.peer.filter(|peer| is_gone(*peer)).map(|_| self.departed)
    }

    /// Takes what the parts were about that were answered.
    pub(crate) fn take_ended(&mut self) -> Vec<About> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the owners of virtual nodes that were heard of.
    pub(crate) fn take_moved(&mut self) -> Vec<(u16, NodeId, OwnerEpoch)> {
        std::mem::take(&mut self.moved)
    }

    /// What waits to be asked again is asked at once.
    pub(crate) fn hurry(&mut self, now: Duration) {
        if let Some(due) = self.flight.as_mut().and_then(|flight| flight.due.as_mut()) {
            *due = now.min(*due);
        }
    }

    /// When to depart again, if that does not depend on an answer.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.flight.as_ref()?.due
    }

    /// Hears what became of the departure of this number. Gives what clients are to be told.
    pub(crate) fn hear(&mut self, now: Duration, number: u64, outcome: Result<KeysReply, HandleError>) -> Replies {
        let mut replies = Replies::default();
        // An answer that comes when it was given up counts no more.
        let is_awaited = |flight: &mut Flight| number == self.departed && flight.due.is_none();
        let Some(mut flight) = self.flight.take_if(is_awaited) else { return replies };
        if self.may_move {
            self.moved = flight.moved(&outcome);
        }
        let refused = flight.sort(outcome, self.owner.is_none(), &mut replies, &mut self.ended);
        let Some(why) = refused else { return replies };
        if now.saturating_sub(flight.since) >= self.patience {
            flight.give_up(&why, &mut replies);
            self.ended.append(&mut flight.about);
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
        let is_news = self.owner.as_ref().is_some_and(|owner| epoch > owner.epoch);
        if is_news {
            self.owner = Some(Owner { node: node.clone(), epoch });
        }
        is_news
    }
}

impl Flight {
    /// The owners of virtual nodes that an answer names.
    fn moved(&self, outcome: &Result<KeysReply, HandleError>) -> Vec<(u16, NodeId, OwnerEpoch)> {
        let Ok(reply) = outcome else { return Vec::new() };
        let named = self.about.iter().zip(reply.outcomes()).filter_map(|(about, outcome)| match outcome {
            Err(HandleError::Moved { to, epoch }) => Some((about.first()?, to.clone(), *epoch)),
            _ => None,
        });
        named.collect()
    }

    /// Gives away the replies that came, and keeps what is to be asked again. Says why it was not done, if there is such.
    fn sort(
        &mut self,
        outcome: Result<KeysReply, HandleError>,
        is_of_lane: bool,
        replies: &mut Replies,
        ended: &mut Vec<About>,
    ) -> Option<HandleError> {
        let mut why = None;
        let mut again = Vec::new();
        // What a node was asked of all its keys nobody else can answer.
        let is_bound = |place: usize| is_of_lane && self.about[place].first().is_none();
        let told = |error: &HandleError, only_reads: bool| match may_repeat(error, only_reads) {
            true => format!("PARTIAL a node did not do its part: {error}"),
            false => unknown(error),
        };
        let parts = self.request.parts().zip(&self.to).enumerate();
        match outcome {
            Ok(reply) if reply.outcomes().len() == self.to.len() => {
                for ((place, (part, to)), outcome) in parts.zip(reply.outcomes()) {
                    match outcome {
                        Ok(answered) => replies.push(*to, |reply| answered.play(reply)),
                        Err(error) if may_repeat(error, part.only_reads()) && !is_bound(place) => {
                            again.push(place);
                            why.get_or_insert_with(|| error.clone());
                        }
                        Err(error) => replies.push(*to, |reply| reply.error(&told(error, part.only_reads()))),
                    }
                }
            }
            outcome => {
                let error = outcome.err().unwrap_or_else(|| HandleError::Unavailable {
                    reason: "the reply is to another request".to_owned(),
                    may_have_run: true,
                });
                for (place, (part, to)) in parts {
                    if may_repeat(&error, part.only_reads()) && !is_bound(place) {
                        again.push(place);
                    } else {
                        replies.push(*to, |reply| reply.error(&told(&error, part.only_reads())));
                    }
                }
                why = (!again.is_empty()).then_some(error);
            }
        }
        if again.len() < self.to.len() {
            self.request = Arc::new(self.request.only(&again));
            self.to = again.iter().map(|place| self.to[*place]).collect();
            let mut again = again.into_iter().peekable();
            for (place, about) in std::mem::take(&mut self.about).into_iter().enumerate() {
                let is_again = again.next_if_eq(&place).is_some();
                if is_again { self.about.push(about) } else { ended.push(about) }
            }
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
            asked.about.push(About::one(number as u16));
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
        let first = courier.depart(at(0), || Some(asked(&[&["incr", "k"]]))).expect("something to ask");
        assert_eq!(first.to, Some(NodeId::new("a")));
        assert!(courier.depart(at(1), || panic!("one at a time")).is_none());
        let moved = |to: &str, epoch| Err(HandleError::Moved { to: NodeId::new(to), epoch: OwnerEpoch(epoch) });
        assert!(courier.hear(at(2), 1, moved("b", 4)).is_empty());
        assert_eq!(courier.depart(at(2), || None).expect("at once").to, Some(NodeId::new("b")));
        // Its news are older than ours.
        assert!(courier.hear(at(3), 2, moved("a", 3)).is_empty());
        assert!(courier.depart(at(3), || None).is_none());
        assert_eq!(courier.due(), Some(at(8)));
        assert_eq!(courier.depart(at(8), || None).expect("after a pause").to, Some(NodeId::new("b")));
    }

    #[test]
    fn what_was_done_is_told_and_the_rest_is_asked_again_in_order() {
        let mut courier = courier();
        courier.depart(at(0), || Some(asked(&[&["incr", "a"], &["incr", "b"], &["get", "b"]]))).expect("something");
        let mut reply = KeysReply::awaiting(3);
        reply.answer(0, |tape| tape.integer(1));
        reply.refuse(1, HandleError::Frozen { retry_after_ms: 20 });
        reply.refuse(2, HandleError::Frozen { retry_after_ms: 20 });
        assert_eq!(told(&courier.hear(at(0), 1, Ok(reply))), [(0, "1".to_owned())]);
        assert_eq!(courier.take_ended(), [About::one(0)]);
        assert!(courier.depart(at(19), || panic!("behind what is asked again")).is_none());
        let again = courier.depart(at(20), || None).expect("it is due").request;
        let commands: Vec<_> = again.parts().flat_map(|part| part.steps()).map(|(command, _)| command.name).collect();
        assert_eq!(commands, ["incr", "get"]);
        let mut reply = KeysReply::awaiting(2);
        reply.answer(0, |tape| tape.integer(1));
        reply.answer(1, |tape| tape.bulk(b"1"));
        assert_eq!(told(&courier.hear(at(21), 2, Ok(reply))), [(1, "1".to_owned()), (2, "\"1\"".to_owned())]);
        assert!(courier.due().is_none() && courier.depart(at(21), || None).is_none());
    }

    #[test]
    fn what_may_have_changed_something_is_not_asked_twice() {
        let mut courier = courier();
        courier.depart(at(0), || Some(asked(&[&["incr", "a"], &["get", "a"]]))).expect("something");
        let lost = HandleError::Unavailable { reason: "the connection broke".to_owned(), may_have_run: true };
        let replies = courier.hear(at(1), 1, Err(lost));
        assert!(matches!(&told(&replies)[..], [(0, text)] if text.starts_with("!UNKNOWN")));
        let again = courier.depart(at(6), || None).expect("what reads").request;
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn it_gives_up_when_nobody_answers_for_long() {
        let mut courier = courier();
        let mut departure = courier.depart(at(0), || Some(asked(&[&["incr", "a"]]))).expect("something");
        let mut now = Duration::ZERO;
        let replies = loop {
            let away = HandleError::Unavailable { reason: "nobody listens".to_owned(), may_have_run: false };
            let replies = courier.hear(now, departure.number, Err(away));
            if !replies.is_empty() {
                break replies;
            }
            now = courier.due().expect("it is asked again");
            departure = courier.depart(now, || None).expect("it is due");
        };
        assert!(now >= at(1000) && now < at(1600));
        assert!(told(&replies)[0].1.starts_with("!TRYAGAIN"));
        assert!(courier.depart(now, || Some(asked(&[&["get", "b"]]))).is_some(), "the next ones have their own chance");
    }

    #[test]
    fn what_a_node_that_is_gone_was_asked_is_in_doubt_and_its_answer_counts_no_more() {
        let mut courier = Courier::of_lane(Duration::from_secs(1), false);
        let departure = courier.depart(at(0), || Some(asked(&[&["incr", "a"], &["get", "a"]]))).expect("something");
        assert_eq!((departure.to, departure.about), (None, Some(0)));
        courier.note_peer(PeerId(3));
        assert_eq!(courier.in_vain(|peer| peer == PeerId(2)), None);
        let number = courier.in_vain(|peer| peer == PeerId(3)).expect("it was asked");
        let gone = || HandleError::Unavailable { reason: "it is gone".to_owned(), may_have_run: true };
        assert!(told(&courier.hear(at(1), number, Err(gone())))[0].1.starts_with("!UNKNOWN"));
        assert_eq!(courier.take_ended(), [About::one(0)]);
        let mut late = KeysReply::awaiting(2);
        late.answer(0, |tape| tape.integer(1));
        assert!(courier.hear(at(1), number, Ok(late)).is_empty());
        assert_eq!(courier.in_vain(|_| true), None, "nobody is being asked");
        assert_eq!(courier.depart(at(6), || None).expect("what reads").request.len(), 1);
    }

    #[test]
    fn what_is_about_all_keys_of_a_node_is_not_asked_of_others() {
        let mut courier = Courier::of_lane(Duration::from_secs(1), false);
        let mut dbsize = asked(&[&["dbsize"], &["get", "a"]]);
        dbsize.about[0] = About::default();
        let number = courier.depart(at(0), || Some(dbsize)).expect("something").number;
        let away = HandleError::Unavailable { reason: "nobody listens".to_owned(), may_have_run: false };
        let replies = courier.hear(at(1), number, Err(away));
        assert!(matches!(&told(&replies)[..], [(0, text)] if text.starts_with("!PARTIAL")), "{:?}", told(&replies));
        assert_eq!(courier.depart(at(6), || None).expect("the other").request.len(), 1);
    }

    #[test]
    fn what_is_about_all_keys_of_a_node_does_not_go_along_to_another() {
        let mut courier = Courier::of_lane(Duration::from_secs(1), false);
        let mut both = asked(&[&["get", "a"], &["dbsize"], &["get", "b"]]);
        both.about[1] = About::default();
        let number = courier.depart(at(0), || Some(both)).expect("something").number;
        let (replies, rest) = courier.shed();
        assert!(matches!(&told(&replies)[..], [(1, text)] if text.starts_with("!PARTIAL")), "{:?}", told(&replies));
        assert_eq!(rest.expect("the others").len(), 2);
        let mut reply = KeysReply::awaiting(2);
        reply.answer(0, |tape| tape.integer(1));
        reply.answer(1, |tape| tape.integer(2));
        let replies = courier.hear(at(1), number, Ok(reply));
        assert_eq!(told(&replies), [(0, "1".to_owned()), (2, "2".to_owned())]);
        assert_eq!(courier.take_ended(), [About::one(0), About::one(2)]);
        let mut alone = asked(&[&["dbsize"]]);
        alone.about[0] = About::default();
        courier.depart(at(2), || Some(alone)).expect("something");
        assert!(courier.shed().1.is_none());
        assert!(courier.depart(at(2), || Some(asked(&[&["get", "a"]]))).is_some(), "it is over");
    }
}
