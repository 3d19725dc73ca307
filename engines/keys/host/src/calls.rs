//! Requests of other nodes: what they are answered waits for the log like any reply.

use std::collections::VecDeque;
use std::sync::Arc;

use savanna_journal::Lsn;
use savanna_keys::handle::{Answer, KeysReply, KeysRequest};

use crate::gate::Clearance;

/// A request of another node on its way to an actor.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub request: Arc<KeysRequest>,
    /// Where the outcome goes.
    pub answer: Answer,
}

/// The requests of other nodes at one actor.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// By the actor's number: under way.
    running: Vec<(u64, Answer)>,
    /// Answered since it was judged last what may be told.
    answered: Vec<(Answer, KeysReply)>,
    /// Answered, and waiting for the log.
    held: VecDeque<(Lsn, Answer, KeysReply)>,
}

impl Calls {
    /// Notes a request that began.
    pub(crate) fn begin(&mut self, number: u64, answer: Answer) {
        self.running.push((number, answer));
    }

    /// Takes a reply.
    pub(crate) fn end(&mut self, number: u64, reply: KeysReply) {
        if let Some(place) = self.running.iter().position(|(other, _)| *other == number) {
            let (_, answer) = self.running.swap_remove(place);
            self.answered.push((answer, reply));
        }
    }

    /// Whether any is answered and not told.
    pub(crate) fn wait(&self) -> bool {
        !self.answered.is_empty() || !self.held.is_empty()
    }

    /// Tells what may be told.
    pub(crate) fn release(&mut self, clearance: Clearance) {
        for (answer, reply) in self.answered.drain(..) {
            // Not before what was held earlier: who asked both hears them in this order.
            match clearance.held.or_else(|| self.held.back().map(|(lsn, ..)| *lsn)) {
                None => answer.give(Ok(reply)),
                Some(lsn) => self.held.push_back((lsn, answer, reply)),
            }
        }
        while let Some((_, answer, reply)) = self.held.pop_front_if(|(lsn, ..)| *lsn <= clearance.durable) {
            answer.give(Ok(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn no_answer_leaves_before_what_it_depends_on_is_durable() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Calls::default();
        let call = |calls: &mut Calls, number: u64| {
            let told = Arc::clone(&told);
            calls.begin(number, Answer::new(move |_| told.lock().unwrap().push(number)));
            calls.end(number, KeysReply::awaiting(0));
        };
        let clearance =
            |held: Option<u64>, durable| Clearance { held: held.map(Lsn), durable: Lsn(durable), wake_at: None };
        call(&mut calls, 1);
        calls.release(clearance(Some(5), 4));
        call(&mut calls, 2);
        calls.release(clearance(None, 4));
        assert!(told.lock().unwrap().is_empty() && calls.wait());
        calls.release(clearance(None, 5));
        assert_eq!(*told.lock().unwrap(), [1, 2]);
        call(&mut calls, 3);
        calls.release(clearance(None, 5));
        assert_eq!(*told.lock().unwrap(), [1, 2, 3]);
        assert!(!calls.wait());
    }
}
