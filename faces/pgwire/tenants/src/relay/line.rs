//! One side's end of a session between two nodes, shared by who reads and writes it and who brings its bytes over.

use std::{io, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use rustls::ServerConfig;
use savanna_pgwire_login::Socket;
use savanna_tenants_host::TenantId;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    back::{Presence, Sessions},
    calls::{Opening, SessionName},
    front::Front,
    stream::{Impossible, Part, Side, SideImage, Which},
};
use crate::{connection::Client, socket::Arriving};

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
    /// Whether another node goes on with the session.
    pub(super) has_departed: bool,
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
        self.side.has_news() && self.asking == 0 || self.side.is_heard_out() || self.has_departed
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

/// A session's line on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineImage {
    side: SideImage,
    /// What the client has said and nobody has obeyed.
    #[serde(with = "super::bytes")]
    input: Bytes,
}

impl LineImage {
    /// Whether it is one that a line has made.
    pub(super) fn is_sound(&self) -> bool {
        self.side.is_sound()
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
            if ends.has_departed {
                return Ok(());
            }
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

    /// Leaves with all that was heard and not read, behind what was read and not obeyed: nothing more is heard or said here. None if there is nobody any more.
    pub(super) fn depart(&self, read: &[u8]) -> Option<LineImage> {
        self.change(|ends| {
            let side = ends.side.image().filter(|_| ends.lost.is_none() && !ends.has_departed)?;
            ends.has_departed = true;
            let input = [read, &ends.heard].concat().into();
            Some(LineImage { side, input })
        })
    }

    /// Goes on with a session of another node, whose image is [sound](SideImage::is_sound).
    pub(super) fn of(image: LineImage) -> Self {
        let LineImage { side, input } = image;
        let ends = Ends { side: side.into(), heard: BytesMut::from(input), ..Ends::default() };
        Self { ends: Mutex::new(ends), ..Self::default() }
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
pub(super) struct Relayed {
    pub(super) line: Arc<Line>,
    pub(super) session: SessionName,
    pub(super) opening: Opening,
    pub(super) sessions: Arc<Sessions>,
    /// Kept until the session has ended, or another node has it.
    pub(super) _presence: Presence,
}

impl Arriving for Relayed {
    type Socket = Self;

    const IS_OF_THIS_NODE: bool = false;

    fn arrive(self) -> io::Result<Self> {
        Ok(self)
    }

    fn park(socket: Self) -> io::Result<Self> {
        Ok(socket)
    }

    /// The node that the client is connected to finds the session where the database is.
    async fn follow(client: Client<Self>, front: Arc<Front>, tenant: TenantId) -> io::Result<()> {
        let Client { socket, input, identity, begins, .. } = client;
        let Some(line) = socket.line.depart(&input) else { return Ok(()) };
        socket.sessions.lock().remove(&socket.session);
        // Until the other node has it, the client is present here.
        front.hand_over(tenant, (socket.session.clone(), socket.opening), (identity, begins), line).await
    }
}

impl Socket for Relayed {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        let read = self.line.until(|ends| match ends.heard.is_empty() {
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
            let room = self.line.until(|ends| match &ends.lost {
                Some(why) => Some(Err(io::Error::new(io::ErrorKind::BrokenPipe, why.clone()))),
                None => WAITING_BYTES_MAX.checked_sub(ends.side.waiting()).filter(|room| *room > 0).map(Ok),
            });
            let count = room.await?.min(bytes.len());
            self.line.change(|ends| ends.side.say(&bytes[..count]));
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
        self.line.change(|ends| {
            // Another node goes on with it.
            if !ends.has_departed {
                ends.side.end();
            }
        });
    }
}

#[cfg(test)]
mod tests {
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
    async fn a_line_goes_on_elsewhere_with_each_byte_once() {
        let (here, front) = (Line::default(), Line::default());
        front.change(|ends| ends.side.say(b"abcd"));
        here.hear(front.part(Which::News)).unwrap();
        assert_eq!(here.change(|ends| ends.heard.split()), "abcd");
        here.change(|ends| ends.side.say(b"12"));
        front.hear(here.part(Which::News)).unwrap();
        // Both are on their way: what the front has heard, and more of each.
        let late = front.part(Which::News);
        front.change(|ends| ends.side.say(b"ef"));
        here.change(|ends| ends.side.say(b"34"));
        here.hear(front.part(Which::News)).unwrap();
        let image = here.depart(b"cd").expect("both are there");
        assert!(here.depart(b"").is_none(), "it has gone");
        front.change(|ends| ends.side.say(b"gh"));
        let ignored = front.part(Which::News);
        here.hear(ignored.clone()).unwrap();
        assert_eq!(here.look(|ends| ends.heard.len()), 2, "nothing is heard here any more");

        let there = Line::of(image);
        there.hear(late).unwrap();
        there.hear(ignored).unwrap();
        assert_eq!(there.change(|ends| ends.heard.split()), "cdefgh");
        front.hear(there.part(Which::News)).unwrap();
        assert_eq!(front.change(|ends| ends.heard.split()), "1234");
        front.hear(there.part(Which::Unheard)).unwrap();
        assert!(front.look(|ends| ends.heard.is_empty()));

        let ended = Line::default();
        ended.change(|ends| ends.side.end());
        assert!(ended.depart(b"").is_none());
        let lost = Line::default();
        lost.lose("gone");
        assert!(lost.depart(b"").is_none());
    }

    #[test]
    fn a_session_that_goes_on_elsewhere_has_not_ended() {
        for departs in [false, true] {
            let line = Arc::<Line>::default();
            let session = SessionName { front: savanna_epoch::NodeId::new("n1"), number: 1 };
            let (opening, sessions, presence) = (Opening(2), Arc::default(), Presence::of(1, &Arc::default()));
            let socket = Relayed { line: Arc::clone(&line), session, opening, sessions, _presence: presence };
            assert_eq!(departs, departs && line.depart(b"").is_some());
            drop(socket);
            assert_eq!(line.look(|ends| ends.side.has_ended()), !departs);
        }
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
