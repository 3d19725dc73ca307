//! Channels: who listens here, and how many elsewhere.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::Actor;
use super::message::{Message, Notice};
use crate::command::{Command, Group};
use crate::error::CommandError;
use crate::keyspace::events::{Event, EventClasses};
use crate::pattern;
use crate::placement::ActorId;
use crate::reply::Reply;
use crate::session::{Session, SessionId};

impl Session {
    /// What it listens to.
    const fn names_mut(&mut self, topic: Topic) -> &mut BTreeSet<Box<[u8]>> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shards,
        }
    }

    /// Refuses what a session with RESP2 may not run while it listens.
    #[inline]
    pub(super) fn check_subscribed(&self, command: &Command) -> Result<(), CommandError> {
        if self.protocol != 2 || !self.is_subscribed() { Ok(()) } else { check_runs_while_listening(command) }
    }
}

fn check_runs_while_listening(command: &Command) -> Result<(), CommandError> {
    let may_run = command.group == Group::PubSub && !matches!(command.name, "publish" | "spublish" | "pubsub")
        || matches!(command.name, "ping" | "quit" | "reset");
    if may_run {
        return Ok(());
    }
    Err(CommandError::from(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    )))
}

/// Who listens to what. Every actor knows how many sessions of every other one listen to a channel, so that publishing
/// asks nobody.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    channels: HashMap<Box<[u8]>, Audience>,
    patterns: HashMap<Box<[u8]>, Audience>,
    shards: HashMap<Box<[u8]>, Audience>,
    /// Who hears of every request.
    pub(super) monitors: Audience,
    /// Whether something was published to other actors since somebody asked.
    has_published_elsewhere: bool,
}

#[derive(Debug, Default)]
pub(super) struct Audience {
    pub(super) here: Vec<SessionId>,
    pub(super) elsewhere: Vec<(ActorId, usize)>,
}

impl Audience {
    fn hear(&mut self, actor: ActorId, count: usize) {
        self.elsewhere.retain(|(other, _)| *other != actor);
        if count > 0 {
            self.elsewhere.push((actor, count));
        }
    }

    fn len(&self) -> usize {
        self.here.len() + self.elsewhere.iter().map(|(_, count)| count).sum::<usize>()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.here.is_empty() && self.elsewhere.is_empty()
    }
}

type Audiences = HashMap<Box<[u8]>, Audience>;

fn hear(audiences: &mut Audiences, actor: ActorId, name: &[u8], count: usize) {
    let audience = audiences.entry(name.into()).or_default();
    audience.hear(actor, count);
    if audience.is_empty() {
        audiences.remove(name);
    }
}

fn join(audiences: &mut Audiences, name: &[u8], session: SessionId) -> usize {
    let audience = audiences.entry(name.into()).or_default();
    audience.here.push(session);
    audience.here.len()
}

fn leave(audiences: &mut Audiences, name: &[u8], session: SessionId) -> usize {
    let Some(audience) = audiences.get_mut(name) else { return 0 };
    audience.here.retain(|other| *other != session);
    let left = audience.here.len();
    if audience.is_empty() {
        audiences.remove(name);
    }
    left
}

impl Listeners {
    pub(super) fn hear(&mut self, actor: ActorId, channel: &[u8], count: usize) {
        hear(&mut self.channels, actor, channel, count);
    }

    pub(super) fn hear_pattern(&mut self, actor: ActorId, pattern: &[u8], count: usize) {
        hear(&mut self.patterns, actor, pattern, count);
    }

    pub(super) fn hear_shard(&mut self, actor: ActorId, channel: &[u8], count: usize) {
        hear(&mut self.shards, actor, channel, count);
    }

    pub(super) fn hear_monitors(&mut self, actor: ActorId, count: usize) {
        self.monitors.hear(actor, count);
    }

    /// Notes that something was told to other actors.
    pub(super) const fn note_told_elsewhere(&mut self) {
        self.has_published_elsewhere = true;
    }

    /// Notes that something was told to other actors, if it was.
    pub(super) const fn note_published_elsewhere(&mut self) {
        self.has_published_elsewhere |= !self.monitors.elsewhere.is_empty();
    }

    fn of(&self, topic: Topic) -> &Audiences {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shards,
        }
    }

    fn of_mut(&mut self, topic: Topic) -> &mut Audiences {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shards,
        }
    }
}

/// A channel, a pattern of channels, or a channel of shards: with a name among its own kind, which patterns do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern,
    Shard,
}

impl Topic {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Channel => "",
            Self::Pattern => "p",
            Self::Shard => "s",
        }
    }
}

impl Actor {
    fn tell_listeners(&mut self, topic: Topic, name: &[u8], count: usize) {
        for actor in self.routes.all() {
            if actor == self.id {
                continue;
            }
            let name = name.into();
            self.send(
                actor,
                match topic {
                    Topic::Channel => Message::Notice(Notice::Listeners { channel: name, count }),
                    Topic::Pattern => Message::Notice(Notice::PatternListeners { pattern: name, count }),
                    Topic::Shard => Message::Notice(Notice::ShardListeners { channel: name, count }),
                },
            );
        }
    }

    /// Lets a session listen.
    pub(crate) fn subscribe(&mut self, session: &mut Session, topic: Topic, name: &[u8], reply: &mut dyn Reply) {
        let names = session.names_mut(topic);
        if !names.contains(name) {
            names.insert(name.into());
            let count = join(self.listeners.of_mut(topic), name, session.id);
            self.tell_listeners(topic, name, count);
        }
        confirm(session, topic, "subscribe", Some(name), reply);
    }

    /// Lets a session stop listening: to one name, or to all.
    pub(crate) fn unsubscribe(
        &mut self,
        session: &mut Session,
        topic: Topic,
        name: Option<&[u8]>,
        reply: &mut dyn Reply,
    ) {
        let leaving: Vec<Box<[u8]>> = match name {
            Some(name) => vec![name.into()],
            None => session.names_mut(topic).iter().cloned().collect(),
        };
        if leaving.is_empty() {
            return confirm(session, topic, "unsubscribe", None, reply);
        }
        for name in leaving {
            self.leave(session, topic, &name);
            confirm(session, topic, "unsubscribe", Some(&name), reply);
        }
    }

    fn leave(&mut self, session: &mut Session, topic: Topic, name: &[u8]) {
        if !session.names_mut(topic).remove(name) {
            return;
        }
        let count = leave(self.listeners.of_mut(topic), name, session.id);
        self.tell_listeners(topic, name, count);
    }

    /// Lets a session stop listening to anything, without a word to it.
    pub(crate) fn unsubscribe_all(&mut self, session: &mut Session) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for name in session.names_mut(topic).clone() {
                self.leave(session, topic, &name);
            }
        }
    }

    /// Publishes to all who listen. Says how many.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let audience = self.listeners.channels.get(channel);
        let patterns = self.listeners.patterns.iter().filter(|(pattern, _)| pattern::matches(pattern, channel));
        let audiences: Vec<&Audience> = audience.into_iter().chain(patterns.map(|(_, audience)| audience)).collect();
        let count = audiences.iter().map(|audience| audience.len()).sum();
        let mut actors: Vec<ActorId> =
            audiences.iter().flat_map(|audience| &audience.elsewhere).map(|(actor, _)| *actor).collect();
        actors.sort();
        actors.dedup();
        self.listeners.has_published_elsewhere |= !actors.is_empty();
        for actor in actors {
            self.send(actor, Message::Notice(Notice::Published { channel: channel.into(), payload: payload.into() }));
        }
        self.publish_here(channel, payload);
        count
    }

    /// Publishes to all who listen to a channel of shards. Says how many.
    pub(crate) fn publish_to_shard(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let Some(audience) = self.listeners.shards.get(channel) else { return 0 };
        let count = audience.len();
        let actors: Vec<ActorId> = audience.elsewhere.iter().map(|(actor, _)| *actor).collect();
        self.listeners.has_published_elsewhere |= !actors.is_empty();
        for actor in actors {
            let notice = Notice::PublishedToShard { channel: channel.into(), payload: payload.into() };
            self.send(actor, Message::Notice(notice));
        }
        self.publish_to_shard_here(channel, payload);
        count
    }

    pub(super) fn publish_to_shard_here(&mut self, channel: &[u8], payload: &[u8]) {
        if let Some(audience) = self.listeners.shards.get(channel).filter(|audience| !audience.here.is_empty()) {
            self.replies.push_to_all(&audience.here, |reply| {
                reply.push(3);
                reply.bulk(b"smessage");
                reply.bulk(channel);
                reply.bulk(payload);
            });
        }
    }

    /// Publishes what became of keys.
    #[cold]
    pub(super) fn publish_events(&mut self) {
        let channels = self.keys.events.wanted();
        for Event { name, database, key } in self.keys.events.take() {
            // Mostly nobody listens to most of them.
            if self.listeners.channels.is_empty() && self.listeners.patterns.is_empty() {
                continue;
            }
            if channels.meets(EventClasses::KEYSPACE) {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &key].concat();
                self.publish(&channel, name.as_bytes());
            }
            if channels.meets(EventClasses::KEYEVENT) {
                self.publish(format!("__keyevent@{database}__:{name}").as_bytes(), &key);
            }
        }
    }

    /// Whether something was published to other actors since this was asked last.
    pub fn has_published_elsewhere(&mut self) -> bool {
        std::mem::take(&mut self.listeners.has_published_elsewhere)
    }

    pub(super) fn publish_here(&mut self, channel: &[u8], payload: &[u8]) {
        if let Some(audience) = self.listeners.channels.get(channel).filter(|audience| !audience.here.is_empty()) {
            self.replies.push_to_all(&audience.here, |reply| {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(channel);
                reply.bulk(payload);
            });
        }
        for (pattern, audience) in &self.listeners.patterns {
            if audience.here.is_empty() || !pattern::matches(pattern, channel) {
                continue;
            }
            self.replies.push_to_all(&audience.here, |reply| {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
                reply.bulk(channel);
                reply.bulk(payload);
            });
        }
    }

    /// The channels of a kind with listeners anywhere.
    pub(crate) fn listened_channels(&self, topic: Topic) -> impl Iterator<Item = &[u8]> {
        self.listeners.of(topic).keys().map(|channel| &**channel)
    }

    /// How many listen to a channel of a kind anywhere.
    pub(crate) fn listeners_of(&self, topic: Topic, channel: &[u8]) -> usize {
        self.listeners.of(topic).get(channel).map_or(0, Audience::len)
    }

    /// How many patterns are listened to anywhere.
    pub(crate) fn pattern_count(&self) -> usize {
        self.listeners.patterns.len()
    }
}

fn confirm(session: &Session, topic: Topic, what: &str, name: Option<&[u8]>, reply: &mut dyn Reply) {
    reply.push(3);
    reply.bulk(format!("{}{what}", topic.prefix()).as_bytes());
    reply.bulk_or_null(name);
    reply.count(match topic {
        Topic::Channel | Topic::Pattern => session.channels.len() + session.patterns.len(),
        Topic::Shard => session.shards.len(),
    });
}
