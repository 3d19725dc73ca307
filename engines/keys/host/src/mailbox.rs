//! How the actors of a node reach each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use savanna_journal::Lsn;
use savanna_keys::actor::message::{Message, Replies};
use savanna_keys::actor::saving::SaveOutcome;
use savanna_keys::cluster::owners::Owners;
use savanna_keys::group::GroupReply;
use savanna_keys::handle::{HandleError, KeysReply};
use savanna_keys::placement::ActorId;

use crate::calls::Call;
use crate::groups::GroupCall;
use crate::moving::{Arrival, DepartureOrder};
use crate::spread::Arriving;

/// Something for an actor and its host.
#[derive(Debug)]
pub enum Mail {
    /// What an actor says, with the position of the log on which it depends.
    Messages {
        /// Who says it.
        from: ActorId,
        /// What it depends on.
        depends: Lsn,
        /// What it says.
        messages: Vec<Message>,
        /// Bytes of what was published among it.
        published: usize,
    },
    /// A thread asks the first one for a rewrite of the log.
    WantRewrite,
    /// All threads have appended their keys once more, and what they had told before comes before this.
    Settle,
    /// The log is being rewritten: all keys are to be appended once more.
    Rewrite,
    /// A thread has appended all its keys, the last up to here.
    Rewritten(Lsn),
    /// Another node asks for something.
    Call(Call),
    /// What became of what this thread asked another node.
    Answered {
        /// By which lane.
        lane: usize,
        /// The departure's number.
        number: u64,
        /// What became of it.
        outcome: Box<Result<KeysReply, HandleError>>,
    },
    /// Somebody asks for something about a group of keys at several nodes.
    Group(GroupCall),
    /// What became of what this thread asked about such a group.
    GroupAnswered {
        /// The question's number.
        number: u64,
        /// What became of it.
        outcome: Box<Result<GroupReply, HandleError>>,
    },
    /// What clients of this thread are told of what it would have asked another node.
    Told(Box<Replies>),
    /// Who has which keys, where each node has some.
    Owners(Arc<Owners>),
    /// Keys of a node that is gone.
    Arriving(Arriving),
    /// A virtual node that goes to another node.
    Departure(DepartureOrder),
    /// A virtual node that comes from another node.
    Arrival(Arrival),
    /// What became of a file with all keys.
    Saved(Arc<SaveOutcome>),
    /// The service ends.
    Stop,
}

impl Mail {
    /// What an actor says, with the position of the log on which it depends.
    #[must_use]
    pub fn messages(from: ActorId, depends: Lsn, messages: Vec<Message>) -> Self {
        let published = messages.iter().map(Message::published_bytes).sum();
        Self::Messages { from, depends, messages, published }
    }

    /// Bytes of what was published among it.
    const fn published(&self) -> usize {
        match self {
            Self::Messages { published, .. } => *published,
            _ => 0,
        }
    }
}

/// Where a thread's mail is put in.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    sender: Sender<Mail>,
    bell: Bell,
    /// Bytes of what was published and is not heard yet.
    published: Arc<AtomicUsize>,
}

/// Who publishes waits while a thread has more than this to hear.
const PUBLISHED_MAX: usize = 16 << 20;

/// Wakes a thread that sleeps.
#[derive(Clone, Debug)]
pub struct Bell {
    waker: Waker,
    is_asleep: Arc<AtomicBool>,
}

impl Bell {
    /// Wakes the thread if it sleeps.
    pub fn ring(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake_by_ref();
        }
    }
}

/// Where a thread's mail comes out.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    /// Of this thread alone: nobody waits for it.
    inbox: Arc<Mutex<Inbox>>,
    bell: Bell,
}

#[derive(Debug)]
struct Inbox {
    receiver: Receiver<Mail>,
    /// What was taken out and put off.
    late: VecDeque<Mail>,
    /// The first of what is new, if it was looked at.
    next: Option<Mail>,
}

impl Inbox {
    fn take_new(&mut self) -> Option<Mail> {
        self.next.take().or_else(|| self.receiver.try_recv().ok())
    }
}

/// A mailbox for the thread that `waker` wakes.
#[must_use]
pub(crate) fn mailbox(waker: Waker) -> (Slot, Mailbox) {
    let (sender, receiver) = channel();
    let bell = Bell { waker, is_asleep: Arc::new(AtomicBool::new(false)) };
    let inbox = Arc::new(Mutex::new(Inbox { receiver, late: VecDeque::new(), next: None }));
    (Slot { sender, bell: bell.clone(), published: Arc::default() }, Mailbox { inbox, bell })
}

impl Slot {
    /// Puts mail in, and wakes the thread if it sleeps. A thread that has ended gets none.
    pub(crate) fn put(&self, mail: Mail) {
        let published = mail.published();
        if published > 0 {
            self.published.fetch_add(published, Ordering::Relaxed);
        }
        if self.sender.send(mail).is_ok() {
            self.bell.ring();
        }
    }

    /// What wakes the thread.
    pub(crate) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Says that this mail is heard.
    pub(crate) fn note_heard(&self, mail: &Mail) {
        let published = mail.published();
        if published > 0 {
            self.published.fetch_sub(published, Ordering::Relaxed);
        }
    }

    /// Whether the thread has much to hear.
    #[must_use]
    pub(crate) fn is_behind(&self) -> bool {
        self.published.load(Ordering::Relaxed) > PUBLISHED_MAX
    }
}

impl Mailbox {
    /// Whether there is mail.
    #[must_use]
    pub(crate) fn has_mail(&self) -> bool {
        let mut inbox = self.inbox();
        inbox.next = inbox.take_new();
        inbox.next.is_some() || !inbox.late.is_empty()
    }

    /// Takes the oldest mail out.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Mail> {
        let mut inbox = self.inbox();
        inbox.late.pop_front().or_else(|| inbox.take_new())
    }

    /// Takes the oldest mail out that was not put off.
    #[must_use]
    pub(crate) fn take_new(&self) -> Option<Mail> {
        self.inbox().take_new()
    }

    /// Puts mail off: it comes before what is new.
    pub(crate) fn put_off(&self, mail: Mail) {
        self.inbox().late.push_back(mail);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What wakes this thread.
    #[must_use]
    pub(crate) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Says that the thread is about to sleep. Mail that came before has to be looked for once more after this; mail that
    /// comes later wakes it.
    pub(crate) fn fall_asleep(&self) {
        self.bell.is_asleep.store(true, Ordering::SeqCst);
    }

    /// Says that the thread is awake.
    pub(crate) fn wake_up(&self) {
        self.bell.is_asleep.store(false, Ordering::SeqCst);
    }
}
