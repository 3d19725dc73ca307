//! What leaves an actor: messages to others, and replies to its own sessions that did not come at once.

use super::Actor;
use super::message::{Message, Replies};
use crate::placement::ActorId;

impl Actor {
    pub(super) fn send(&mut self, to: ActorId, message: Message) {
        self.outboxes[to.index()].push(message);
    }

    /// Whether anything is to be sent. What the actor changed must be in the log first, or the log would have what follows
    /// from a change before the change.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.outboxes.iter().any(|outbox| !outbox.is_empty())
    }

    /// Takes what is to be sent to an actor. What the actor changed must be in the log first.
    #[must_use]
    pub fn take_outbox(&mut self, to: ActorId) -> Vec<Message> {
        std::mem::take(&mut self.outboxes[to.index()])
    }

    /// The replies that are being collected for an actor, to be put back.
    pub(super) fn take_replies(&mut self, to: ActorId) -> Replies {
        if to == self.id {
            return std::mem::take(&mut self.replies);
        }
        match self.outboxes[to.index()].pop_if(|message| matches!(message, Message::Replies(_))) {
            Some(Message::Replies(replies)) => replies,
            _ => Replies::default(),
        }
    }

    pub(super) fn put_replies(&mut self, to: ActorId, replies: Replies) {
        if to == self.id {
            // What ran may have published something.
            let meanwhile = std::mem::replace(&mut self.replies, replies);
            meanwhile.iter().for_each(|(to, part)| self.replies.push(to, |reply| part.play(reply)));
        } else if !replies.is_empty() {
            self.outboxes[to.index()].push(Message::Replies(replies));
        }
    }

    /// Bytes of replies and messages for sessions of this actor, for each session that gets them.
    #[must_use]
    pub const fn reply_bytes(&self) -> usize {
        self.replies.byte_count()
    }

    /// Takes the replies that came for sessions of this actor; to be given back cleared.
    #[must_use]
    pub fn take_own_replies(&mut self) -> Replies {
        self.hear_own_parts();
        if !self.executions.is_empty() {
            self.hear_steps();
        }
        self.end_answered_reads();
        std::mem::take(&mut self.replies)
    }

    /// Gives the memory of replies back that were taken.
    pub fn recycle(&mut self, mut replies: Replies) {
        if self.replies.is_empty() {
            replies.clear();
            self.replies = replies;
        }
    }
}
