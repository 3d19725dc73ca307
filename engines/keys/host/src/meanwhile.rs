//! Clients that are served while a script has the actor.
//!
//! The thread is deep inside of the script then. What leaves meanwhile may depend on what was there before, if that is in the log;
//! nothing that leaves depends on what the script has changed.

use std::fmt::Debug;
use std::sync::Arc;

use savanna_journal::{Journal, Lsn};
use savanna_keys::actor::message::{Message, Replies};
use savanna_keys::actor::{Actor, Attendant, Progress};
use savanna_keys::placement::ActorId;
use savanna_keys::reply::Reply;
use savanna_keys::request::Args;
use savanna_keys::session::SessionId;
use savanna_ownership::guard::LeaseGuard;

use crate::admission::Admission;
use crate::gate::Depends;
use crate::mailbox::{Mail, Mailbox, Slot};

/// The clients of a thread, as a script's host needs them.
pub trait Clients: Send + Debug {
    /// Takes those that come, and what they say.
    fn read(&mut self, meanwhile: &mut Meanwhile<'_>);
    /// Tells them what may be told.
    fn write(&mut self, meanwhile: &mut Meanwhile<'_>);
}

/// An actor while it runs a script.
#[derive(Debug)]
pub struct Meanwhile<'a> {
    actor: &'a mut Actor,
    durable: Lsn,
    may_tell_earlier: bool,
}

impl Meanwhile<'_> {
    /// The actor, to be looked at.
    #[must_use]
    pub const fn actor(&self) -> &Actor {
        self.actor
    }

    /// For clients that come.
    pub const fn admission(&mut self) -> Admission<'_> {
        Admission::new(self.actor)
    }

    /// Up to where the log is durable.
    #[must_use]
    pub const fn durable(&self) -> Lsn {
        self.durable
    }

    /// Whether replies may leave that were there when the script began.
    #[must_use]
    pub const fn may_tell_earlier(&self) -> bool {
        self.may_tell_earlier
    }

    /// Takes a request. Its reply depends on nothing.
    pub fn request(&mut self, session: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        self.actor.request_meanwhile(session, args, reply)
    }

    /// Takes the replies that came from other actors; to be given back.
    #[must_use]
    pub fn take_replies(&mut self) -> Replies {
        self.actor.take_own_replies()
    }

    /// Gives back the memory of replies.
    pub fn recycle(&mut self, replies: Replies) {
        self.actor.recycle(replies);
    }
}

/// Serves clients and mail while a script runs.
#[derive(Debug)]
pub(crate) struct Attendance {
    pub(crate) clients: Box<dyn Clients>,
    pub(crate) slots: Arc<[Slot]>,
    pub(crate) mailbox: Mailbox,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) lease: Option<LeaseGuard>,
    pub(crate) depends: Depends,
}

impl Attendant for Attendance {
    fn attend(&mut self, actor: &mut Actor) {
        if !self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return;
        }
        self.hear(actor);
        let durable = self.journal.as_ref().map_or(Lsn(u64::MAX), |journal| journal.durable());
        let depends = (!actor.had_changes()).then(|| self.depends.get());
        let may_tell_earlier = depends.is_some_and(|depends| depends <= durable);
        let mut meanwhile = Meanwhile { actor, durable, may_tell_earlier };
        self.clients.read(&mut meanwhile);
        if let Some(depends) = depends {
            self.send(meanwhile.actor, depends, Actor::take_said_before);
        }
        // It depends on nothing.
        self.send(meanwhile.actor, Lsn::NONE, Actor::take_outbox);
        self.clients.write(&mut meanwhile);
    }
}

impl Attendance {
    /// Takes the mail that need not wait for the script.
    fn hear(&self, actor: &mut Actor) {
        while let Some(mail) = self.mailbox.take_new() {
            self.mailbox.put_off(match mail {
                Mail::Messages { from, depends, messages, published } => {
                    let later = messages.into_iter().filter_map(|message| actor.deliver_meanwhile(from, message));
                    Mail::Messages { from, depends, messages: later.collect(), published }
                }
                other => other,
            });
        }
    }

    /// Sends what the actor says to others.
    fn send(&self, actor: &mut Actor, depends: Lsn, take: impl Fn(&mut Actor, ActorId) -> Vec<Message>) {
        for to in actor.actors() {
            let messages = take(actor, to);
            if !messages.is_empty() {
                self.slots[to.index()].put(Mail::messages(actor.id(), depends, messages));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use savanna_epoch::NodeEpoch;
    use savanna_journal::Options;
    use savanna_keys::config::Config;
    use savanna_keys::placement::{Routes, group_of};
    use savanna_keys::reply::Tape;
    use savanna_keys::request::OwnedArgs;

    use super::*;
    use crate::service::{HostOptions, Service};
    use crate::worker::Worker;

    /// Looks once whether a thread has mail, then ends the script.
    #[derive(Debug)]
    struct Watcher {
        mailbox: Mailbox,
        looks: Arc<AtomicUsize>,
        mails: Arc<AtomicUsize>,
    }

    impl Clients for Watcher {
        fn read(&mut self, _: &mut Meanwhile<'_>) {}

        fn write(&mut self, meanwhile: &mut Meanwhile<'_>) {
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.mails.fetch_add(usize::from(self.mailbox.has_mail()), Ordering::Relaxed);
            let operator = meanwhile.admission().open(String::new(), String::new(), None, true);
            let kill = OwnedArgs::of_words(&[b"SCRIPT", b"KILL"]);
            meanwhile.request(operator, kill.args(), &mut Tape::new());
        }
    }

    fn request(worker: &mut Worker, session: SessionId, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        worker.request(session, OwnedArgs::of_words(&words).args(), &mut Tape::new());
    }

    #[test]
    fn what_a_transaction_says_before_its_script_waits_for_its_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Some((Options::dir(folder.path()), NodeEpoch(1)));
        let options = HostOptions {
            threads: 2,
            config: Config::default(),
            log,
            lease: None,
            seed: 1,
            elsewhere: None,
            spread: None,
        };
        let (_service, mut workers) = Service::open(options, vec![Waker::noop().clone(); 2]).expect("an empty log");
        let (looks, mails) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mailbox = workers[1].mailbox.clone();
        for worker in &mut workers {
            let watcher = Watcher { mailbox: mailbox.clone(), looks: Arc::clone(&looks), mails: Arc::clone(&mails) };
            worker.begin(Box::new(watcher));
        }
        let [publisher, listener] = &mut workers[..] else { panic!("two threads") };
        let session = listener.admission().open(String::new(), String::new(), None, true);
        request(listener, session, &["SUBSCRIBE", "news"]);
        listener.finish_turn().expect("a log");
        publisher.begin_turn();
        let session = publisher.admission().open(String::new(), String::new(), None, true);
        let is_here = |key: &String| Routes::over(2).actor_of(group_of(key.as_bytes())).index() == 0;
        let key = (0..).map(|number| format!("key{number}")).find(is_here).expect("a key of the first thread");
        let endless = ["EVAL", "while true do end", "0"];
        for words in [&["MULTI"][..], &["SET", &key, "changed"], &["PUBLISH", "news", "changed"], &endless, &["EXEC"]] {
            request(publisher, session, words);
        }
        assert_eq!((looks.load(Ordering::Relaxed), mails.load(Ordering::Relaxed)), (1, 0), "looks, and mail seen");
        publisher.finish_turn().expect("a log");
        assert!(listener.mailbox.has_mail(), "it is told when the change is in the log");
    }

    /// Asks once while a script runs, and ends the script.
    #[derive(Debug)]
    struct Asker(Arc<Mutex<Vec<String>>>);

    impl Clients for Asker {
        fn read(&mut self, _: &mut Meanwhile<'_>) {}

        fn write(&mut self, meanwhile: &mut Meanwhile<'_>) {
            let client = meanwhile.admission().open(String::new(), String::new(), None, true);
            for words in
                [&[&b"PING"[..]][..], &[b"ECHO", b"x"], &[b"SELECT", b"1"], &[b"GET", b"k"], &[b"SCRIPT", b"KILL"]]
            {
                let mut told = Tape::new();
                meanwhile.request(client, OwnedArgs::of_words(words).args(), &mut told);
                self.0.lock().expect("a list").push(told.to_string());
            }
        }
    }

    #[test]
    fn what_needs_no_keys_is_answered_while_a_script_runs_until_others_are_to_hear_of_it() {
        for (busy_millis, expected) in
            [(60_000, ["PONG", "\"x\"", "OK"]), (0, ["PONG", "\"x\"", "OK"]), (10, ["!BUSY"; 3])]
        {
            let config = Config { busy_millis, ..Config::default() };
            let options =
                HostOptions { threads: 1, config, log: None, lease: None, seed: 1, elsewhere: None, spread: None };
            let (_service, mut workers) = Service::open(options, vec![Waker::noop().clone()]).expect("no log");
            let told = Arc::<Mutex<Vec<String>>>::default();
            workers[0].begin(Box::new(Asker(Arc::clone(&told))));
            workers[0].begin_turn();
            let session = workers[0].admission().open(String::new(), String::new(), None, true);
            request(&mut workers[0], session, &["EVAL", "while true do end", "0"]);
            let told: Vec<String> = told.lock().expect("a list").clone();
            let begins = |(told, expected): (&String, &str)| told.starts_with(expected);
            assert!(told.iter().zip(expected).all(begins), "{busy_millis}: {told:?}");
            assert!(told[3].starts_with("!BUSY") && told[4] == "OK", "{told:?}");
        }
    }
}
