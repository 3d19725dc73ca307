//! What leaves a process, and whether it may.

use std::sync::Arc;

use savanna_files::Request;
use savanna_files::ids::Txid;

use super::process::{Call, Held, Point, Told};
use super::tree::{Answer, Asked, Replicas, Tree};
use super::world::{Variant, World};

impl World {
    /// Something leaves whose records the log has, or that needs none.
    pub(super) fn leave(&mut self, at: u64, held: Held) -> Result<(), String> {
        let Some(process) = self.process(at) else { return Ok(()) };
        let serves = process.guard.serving();
        match held {
            Held::Told(told) if serves || self.variant == Variant::LeaseIgnored => self.tell(at, told)?,
            Held::Told(told) => self.lose(&told.call),
            Held::Remove(blocks) if serves => {
                self.happened.removed += 1;
                self.replicas.retain(|block, _| !blocks.contains(block));
            }
            // Who begins finds them.
            Held::Remove(_) => {}
            Held::Close(recovery) => {
                if let Some(process) = self.process_mut(at) {
                    process.closing.push(recovery);
                }
            }
        }
        Ok(())
    }

    /// A client hears an answer, which has to have a place in the order of changes.
    fn tell(&mut self, at: u64, told: Told) -> Result<(), String> {
        let Told { call, answer, point } = told;
        let floor = call.floor;
        let line = self.line();
        let of_process = self.process(at).map_or(&[][..], |process| &process.line[..]);
        let is_on = |txid: Txid| {
            let index = usize::try_from(txid.0).expect("a few changes");
            matches!((line.get(index), of_process.get(index)), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
        };
        let place = match point {
            Point::Refused => None,
            Point::Change(txid) | Point::Again(txid) if !is_on(txid) => {
                return Err(format!("{call:?} is told of change {txid}, which another owner does not know"));
            }
            Point::Change(txid) | Point::Again(txid) => Some(usize::try_from(txid.0).expect("a few changes")),
            Point::At(txid) if !is_on(txid) => {
                return Err(format!("{call:?} is told of what was at {txid}, which another owner does not know"));
            }
            Point::At(txid) => {
                let index = usize::try_from(txid.0).expect("a few changes");
                let is_same = |tree: &Arc<Tree>| tree.is_same_for(&line[index], &call.request);
                let first = index.max(floor);
                let place = line.iter().skip(first).position(is_same).map(|behind| first + behind);
                if place.is_none() {
                    return Err(format!("{call:?} is told of {index}, and what it is about is not so since {floor}"));
                }
                place
            }
            Point::Timeless => {
                let is_right = |tree: &Arc<Tree>| answer.is(&would_answer(tree, &call.request));
                let place = line.iter().skip(floor).position(is_right).map(|behind| floor + behind);
                if place.is_none() {
                    return Err(format!("{call:?} is told {answer:?}, which is not so since change {floor}"));
                }
                place
            }
        };
        if let (Point::Change(_) | Point::Again(_), Some(place)) = (point, place)
            && place <= floor
        {
            return Err(format!("{call:?} is change {place}, and was asked after somebody was told of {floor}"));
        }
        self.told = self.told.max(place.unwrap_or(0));
        self.happened.told += 1;
        let client = &mut self.clients[call.client];
        if client.pending.as_ref().is_some_and(|pending| pending.call.number == call.number) {
            if answer == Answer::Refused(savanna_files::Class::Retriable) {
                client.pending = None;
            } else {
                client.hear(&call.request, &answer);
            }
        }
        Ok(())
    }

    /// A client will not hear an answer.
    pub(super) fn lose(&mut self, call: &Call) {
        self.happened.lost += 1;
        if let Some(pending) = &mut self.clients[call.client].pending
            && pending.call.number == call.number
        {
            pending.at = None;
        }
    }
}

/// What a tree answers to something that changes nothing then.
fn would_answer(tree: &Tree, request: &Request) -> Answer {
    let asked = Asked { now: savanna_files::ids::Millis(0), call: None, replicas: &Replicas::new(), has_gone: false };
    tree.look(request).unwrap_or_else(|| tree.clone().ask(request, &asked))
}

/// Whether nothing but the tree decides what a request is answered.
pub(super) const fn is_timeless(request: &Request) -> bool {
    !matches!(
        request,
        Request::AddBlock { .. }
            | Request::Complete { .. }
            | Request::GiveUp { .. }
            | Request::Append { .. }
            | Request::NewStamp { .. }
            | Request::UpdatePipeline { .. }
    )
}
