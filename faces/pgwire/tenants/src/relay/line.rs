//! One side's end of a session between two nodes, shared by who reads and writes it and who brings its bytes over.

use std::{io, sync::Arc, time::Duration};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustls::ServerConfig;
use savanna_pgwire_login::Socket;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::stream::{Impossible, Part, Side, Which};
use crate::socket::Arriving;

/// A part has at most so many bytes.
pub(super) const PART_BYTES: usize = 256 << 10;
/// So many bytes may wait on each side; who says more waits.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;
/// A side that has nothing to say says so, for the other to know that it is there.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// A back ends a session whose front it does not reach for so long, and a front a client that does not take for so long what is its last.
pub(super) const ORPHANED: Duration = Duration::from_secs(60);

/// Between two attempts to have the other side hear something, the first and the longest. Mostly it is only that a reply was overtaken;
/// else the other side has no room, as its client reads slowly.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// How long to wait before something is said again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) const fn new() -> Self {
        Self(PAUSES.0)
    }

    /// Waits, each time longer.
    pub(super) async fn wait(&mut self) {
        sleep(self.0).await;
        *self = self.longer();
    }

    /// The next one.
    pub(super) fn longer(self) -> Self {
        Self((2 * self.0).min(PAUSES.1))
    }
}

/// What was heard and is to be read, and what was said and is to be heard.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) side: Side,
    pub(super) heard: BytesMut,
    /// Why the other side is not reached any more.
    pub(super) lost: Option<String>,
    /// Requests of the other side that take back what is said meanwhile.
    asking: usize,
}

impl Ends {
    /// Whether nothing more will be read.
    pub(super) fn is_over(&self) -> bool {
        self.heard.is_empty() && (self.side.other_has_ended() || self.lost.is_some())
    }

    /// Whether somebody has to bring what was said, or to let the session go.
    fn is_due(&self) -> bool {
        self.side.has_news() && self.asking == 0 || self.side.is_heard_out()
    }

    fn has_room(&self) -> bool {
        self.side.waiting() < WAITING_BYTES_MAX
    }

    /// What is waited for in [`Line::until`]: who waits is told when some of it comes true.
    fn awaited(&self) -> [bool; 5] {
        let side = &self.side;
        [side.has_news(), !self.heard.is_empty(), side.other_has_ended(), self.lost.is_some(), self.has_room()]
    }
}

/// A line to the other node.
#[derive(Debug, Default)]
pub(super) struct Line {
    ends: Mutex<Ends>,
    changed: Notify,
    due: Notify,
}

impl Line {
    /// Does something to the ends, and tells who waits for what has come true. Every wake-up is a thread's: nobody is woken for nothing.
    pub(super) fn change<T>(&self, what: impl FnOnce(&mut Ends) -> T) -> T {
        let mut ends = self.ends.lock();
        let (awaited, was_due) = (ends.awaited(), ends.is_due());
        let done = what(&mut ends);
        let has_come = awaited.iter().zip(ends.awaited()).any(|(was, is)| is && !was);
        let is_due = ends.is_due() && !was_due;
        drop(ends);
        if has_come {
            self.changed.notify_waiters();
        }
        if is_due {
            self.due.notify_waiters();
        }
        done
    }

    /// Looks at the ends.
    pub(super) fn look<T>(&self, what: impl FnOnce(&Ends) -> T) -> T {
        what(&self.ends.lock())
    }

    /// Waits until something can be got of the ends, which follows from what is [`awaited`](Ends::awaited). Nothing is lost if nobody waits any more.
    pub(super) async fn until<T>(&self, what: impl FnMut(&mut Ends) -> Option<T>) -> T {
        self.told(&self.changed, what).await
    }

    /// Waits until somebody has to bring what was said, or to let the session go.
    pub(super) async fn until_due(&self) {
        self.told(&self.due, |ends| ends.is_due().then_some(())).await;
    }

    async fn told<T>(&self, changed: &Notify, mut what: impl FnMut(&mut Ends) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if let Some(found) = what(&mut self.ends.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// Takes what is new in a part, as far as there is room for it. Who sent it sends the rest again.
    pub(super) fn hear(&self, mut part: Part) -> Result<(), Impossible> {
        self.change(|ends| {
            let room = WAITING_BYTES_MAX.saturating_sub(ends.heard.len());
            if part.bytes.len() > room {
                part.bytes.truncate(room);
                part.ends = false;
            }
            let new = ends.side.hear(&part)?;
            ends.heard.extend_from_slice(&new);
            Ok(())
        })
    }

    /// Takes a request of the other side, and what it comes to: a part that says something waits so long for an answer. What comes later is due.
    pub(super) async fn answer(&self, part: Part, hold: Duration) -> Result<Part, Impossible> {
        // Nobody else is to bring what the answer takes, so this ends when it has taken it.
        let asking = (!part.bytes.is_empty() || part.ends).then(|| Asking::new(self));
        self.hear(part)?;
        if asking.is_some() {
            let _ = timeout(hold, self.until(|ends| ends.side.has_news().then_some(()))).await;
        }
        Ok(self.part(Which::Unheard))
    }

    /// What is to be sent.
    pub(super) fn part(&self, of: Which) -> Part {
        self.change(|ends| ends.side.part(of, PART_BYTES))
    }

    /// How much was heard, and nothing else.
    pub(super) fn acknowledgement(&self) -> Part {
        Part { ends: false, ..self.change(|ends| ends.side.part(Which::Unheard, 0)) }
    }

    /// The other side is not reached any more.
    pub(super) fn lose(&self, why: impl Into<String>) {
        self.change(|ends| ends.lost.get_or_insert_with(|| why.into()).len());
    }
}

/// A request that takes back what is said meanwhile.
struct Asking<'a>(&'a Line);

impl<'a> Asking<'a> {
    fn new(line: &'a Line) -> Self {
        line.change(|ends| ends.asking += 1);
        Self(line)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.change(|ends| ends.asking -= 1);
    }
}

/// A client whose socket is on another node.
#[derive(Debug)]
pub(super) struct Relayed(pub(super) Arc<Line>);

impl Arriving for Relayed {
    type Socket = Self;

    fn arrive(self) -> io::Result<Self> {
        Ok(self)
    }
}

impl Socket for Relayed {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        let read = self.0.until(|ends| match ends.heard.is_empty() {
            false => Some(Ok(ends.heard.split())),
            true if ends.side.other_has_ended() => Some(Ok(BytesMut::new())),
            true => ends.lost.clone().map(|why| Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))),
        });
        let read = read.await?;
        into.extend_from_slice(&read);
        Ok(read.len())
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.0.until(|ends| match &ends.lost {
                Some(why) => Some(Err(io::Error::new(io::ErrorKind::BrokenPipe, why.clone()))),
                None => WAITING_BYTES_MAX.checked_sub(ends.side.waiting()).filter(|room| *room > 0).map(Ok),
            });
            let count = room.await?.min(bytes.len());
            self.0.change(|ends| ends.side.say(&bytes[..count]));
            bytes.advance(count);
        }
        Ok(())
    }

    async fn encrypt(&mut self, _: Arc<ServerConfig>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a client's front encrypts its connection"))
    }

    fn is_encrypted(&self) -> bool {
        false
    }

    async fn close(self) {}
}

/// The session is over: the client is told, however it came about.
impl Drop for Relayed {
    fn drop(&mut self) {
        self.0.change(|ends| ends.side.end());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    type Waits = fn(&mut Ends) -> Option<()>;
    type Comes = fn(&mut Ends);

    #[tokio::test]
    async fn who_waits_is_told_when_it_comes_true() {
        let cases: [(Waits, Comes, Comes); 5] = [
            (|ends| ends.side.has_news().then_some(()), |_| (), |ends| ends.side.say(b"a")),
            (|ends| (!ends.heard.is_empty()).then_some(()), |_| (), |ends| ends.heard.extend_from_slice(b"a")),
            (|ends| ends.is_over().then_some(()), |_| (), |ends| ends.lost = Some("gone".to_owned())),
            (
                |ends| ends.has_room().then_some(()),
                |ends| {
                    ends.side.say(&vec![0; WAITING_BYTES_MAX]);
                    ends.side.part(Which::News, WAITING_BYTES_MAX);
                },
                |ends| drop(ends.side.hear(&Part { heard: 1, ..Part::default() })),
            ),
            (
                |ends| ends.side.other_has_ended().then_some(()),
                |_| (),
                |ends| drop(ends.side.hear(&Part { ends: true, ..Part::default() })),
            ),
        ];
        for (number, (waits, before, comes)) in cases.into_iter().enumerate() {
            let line = Arc::new(Line::default());
            line.change(before);
            let waiting = tokio::spawn({
                let line = Arc::clone(&line);
                async move { line.until(waits).await }
            });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished(), "{number}");
            line.change(comes);
            timeout(Duration::from_secs(60), waiting).await.expect("it is told").expect("it does not panic");
        }
    }

    #[tokio::test]
    async fn what_a_request_waits_for_is_brought_only_when_none_does_any_more() {
        let line = Arc::new(Line::default());
        line.change(|ends| ends.asking += 1);
        let bringing = tokio::spawn({
            let line = Arc::clone(&line);
            async move { line.until_due().await }
        });
        tokio::task::yield_now().await;
        line.change(|ends| ends.side.say(b"a"));
        tokio::task::yield_now().await;
        assert!(!bringing.is_finished());
        line.change(|ends| ends.asking -= 1);
        timeout(Duration::from_secs(60), bringing).await.expect("it is told").expect("it does not panic");
    }
    #[tokio::test]
    async fn what_a_request_takes_back_is_not_due() {
        let line = Line::default();
        let mut due = std::pin::pin!(line.due.notified());
        due.as_mut().enable();
        let request = |at| Part { at, bytes: Bytes::from_static(b"?"), heard: at, ..Part::default() };
        let session = async {
            line.until(|ends| (!ends.heard.is_empty()).then_some(())).await;
            line.change(|ends| ends.side.say(b"!"));
        };
        let (answer, ()) = tokio::join!(line.answer(request(0), Duration::from_secs(60)), session);
        assert_eq!(answer.unwrap().bytes, "!");
        assert!(timeout(Duration::ZERO, due.as_mut()).await.is_err());

        let early = line.answer(request(1), Duration::ZERO).await;
        assert!(early.unwrap().bytes.is_empty());
        line.change(|ends| ends.side.say(b"!"));
        assert!(timeout(Duration::ZERO, due).await.is_ok(), "nobody waits for it any more");
    }
}
