//! What is said about groups of keys at several nodes: what depends on the log waits for it, like any reply.

use std::collections::VecDeque;

use savanna_journal::Lsn;
use savanna_keys::actor::GroupLetter;
use savanna_keys::group::{GroupReply, GroupRequest};
use savanna_keys::handle::{Answer, HandleError};

use crate::gate::Clearance;

/// A request about a group on its way to an actor.
#[derive(Debug)]
pub struct GroupCall {
    /// What is asked.
    pub request: GroupRequest,
    /// Where the outcome goes.
    pub answer: Answer<GroupReply>,
}

/// Something that may leave.
#[derive(Debug)]
pub(crate) enum Letter {
    /// To whoever has a virtual node, under a number by which the answer is known.
    Ask(u64, GroupRequest),
    Answer(Answer<GroupReply>, Result<GroupReply, HandleError>),
}

/// What one actor says about groups.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    /// By the actor's number: what others ask, and is not answered.
    running: Vec<(u64, Answer<GroupReply>)>,
    /// Said since it was judged last what may be told, with whether it says anything.
    said: Vec<(bool, Letter)>,
    /// Waiting for the log.
    held: VecDeque<(Lsn, Letter)>,
}

impl Letters {
    /// Notes a request of somebody else that began.
    pub(crate) fn begin(&mut self, number: u64, answer: Answer<GroupReply>) {
        self.running.push((number, answer));
    }

    /// Takes what the actor says.
    pub(crate) fn take(&mut self, letter: GroupLetter) {
        match letter {
            GroupLetter::Ask { number, request } => {
                let says_something = request.says_something();
                self.said.push((says_something, Letter::Ask(number, request)));
            }
            GroupLetter::Answer { number, outcome } => {
                if let Some(place) = self.running.iter().position(|(other, _)| *other == number) {
                    let (_, answer) = self.running.swap_remove(place);
                    self.said.push((true, Letter::Answer(answer, outcome)));
                }
            }
        }
    }

    /// Whether any is to leave.
    pub(crate) fn wait(&self) -> bool {
        !self.said.is_empty() || !self.held.is_empty()
    }

    /// Gives what may leave. They may come in any order.
    pub(crate) fn release(&mut self, clearance: Clearance) -> Vec<Letter> {
        let mut free = Vec::new();
        for (says_something, letter) in self.said.drain(..) {
            match clearance.held.filter(|_| says_something) {
                None => free.push(letter),
                Some(lsn) => self.held.push_back((lsn, letter)),
            }
        }
        while let Some((_, letter)) = self.held.pop_front_if(|(lsn, _)| *lsn <= clearance.durable) {
            free.push(letter);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use savanna_keys::group::GroupId;

    use super::*;

    const GROUP: GroupId = GroupId { node: 1, life: 1, number: 1 };

    fn asks(letters: &mut Letters, number: u64, request: GroupRequest) {
        letters.take(GroupLetter::Ask { number, request });
    }

    #[test]
    fn nobody_hears_what_a_group_has_written_or_that_keys_are_lent_before_it_is_durable() {
        let lend = GroupRequest::Lend { group: GROUP, node: 1, keys: Vec::new(), needs_room: false };
        let ended =
            GroupRequest::Return { group: GROUP, node: 1, number: None, from: 0, is_last: true, writes: Vec::new() };
        let clearance =
            |held: Option<u64>, durable| Clearance { held: held.map(Lsn), durable: Lsn(durable), wake_at: None };
        let mut letters = Letters::default();
        asks(&mut letters, 1, lend);
        asks(&mut letters, 2, ended);
        letters.begin(3, Answer::new(|_| {}));
        letters.take(GroupLetter::Answer { number: 3, outcome: Ok(GroupReply::Returned) });
        let free = letters.release(clearance(Some(5), 4));
        assert!(matches!(free[..], [Letter::Ask(1, _)]), "who asks for keys tells nothing: {free:?}");
        assert!(letters.release(clearance(None, 4)).is_empty() && letters.wait());
        let free = letters.release(clearance(None, 5));
        assert!(matches!(free[..], [Letter::Ask(2, _), Letter::Answer(..)]), "{free:?}");
        assert!(!letters.wait());
    }
}
