//! The thin driver around one connection's [`SessionCore`]: moves bytes, runs handlers, keeps the clock.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use savanna_epoch::NodeId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::{AbortHandle, JoinError, JoinSet},
    time::Instant,
};
use tokio_rustls::TlsStream;

use super::{
    TcpConfig, tls,
    traffic::Traffic,
    wire::{self, Reader, Writer},
};
use crate::{
    CallId, Frame, Message, Request, RequestContext, RequestId, RpcError, Service, SessionAction, SessionCore,
    SessionInput, frame,
};

const READ_BYTES: usize = 16 * 1024;

/// A call on its way to the connection.
pub(super) struct PendingCall {
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Bytes, RpcError>>,
}

/// What the callers of one node send to its connection.
pub(super) struct Commands {
    pub(super) calls: mpsc::Receiver<PendingCall>,
    /// One id at most for each call that was taken on, so the calls' own bound bounds it.
    pub(super) cancels: mpsc::UnboundedReceiver<CallId>,
}

/// Why a connection came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// Nobody used it for a while.
    Idle,
    /// Its owner is gone.
    Dropped,
    /// It broke, with the reason.
    Broken(String),
}

/// A stream with the bytes read from it that are not a whole frame yet.
pub(super) struct FrameStream {
    reader: Reader,
    writer: Writer,
    input: BytesMut,
    output: BytesMut,
    /// Some of what was written may not be on its way.
    is_unflushed: bool,
    frame_bytes_max: usize,
}

impl FrameStream {
    pub(super) fn plain(stream: TcpStream, frame_bytes_max: usize) -> Self {
        Self::over(wire::plain(stream), frame_bytes_max)
    }

    pub(super) fn encrypted(stream: TlsStream<TcpStream>, frame_bytes_max: usize) -> Self {
        Self::over(wire::encrypted(stream), frame_bytes_max)
    }

    fn over((reader, writer): (Reader, Writer), frame_bytes_max: usize) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Self { reader, writer, input, output, is_unflushed: false, frame_bytes_max }
    }

    /// Whether something waits to be written.
    fn is_writing(&self) -> bool {
        self.is_unflushed || !self.output.is_empty()
    }

    /// Frames may have so many bytes from now on.
    pub(super) const fn allow_frames(&mut self, bytes_max: usize) {
        self.frame_bytes_max = bytes_max;
    }

    /// Sends one frame and waits until the kernel has taken it.
    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), String> {
        frame::encode(frame, self.frame_bytes_max, &mut self.output).map_err(|error| error.to_string())?;
        let writing = async {
            self.writer.write_all_buf(&mut self.output).await?;
            self.writer.flush().await
        };
        writing.await.map_err(|error| format!("write failed: {}", tls::reason(&error)))
    }

    /// Waits for one frame.
    pub(super) async fn receive(&mut self) -> Result<Frame, String> {
        loop {
            if let Some(frame) =
                frame::decode(&mut self.input, self.frame_bytes_max).map_err(|error| error.to_string())?
            {
                return Ok(frame);
            }
            read_some(&mut self.reader, &mut self.input).await?;
        }
    }
}

/// Replies are small and awaited; a delay for batching would be added to each. Failure only costs latency.
pub(super) fn send_at_once(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}

/// Returns how many bytes came.
async fn read_some(reader: &mut Reader, input: &mut BytesMut) -> Result<usize, String> {
    if input.capacity() - input.len() < READ_BYTES {
        input.reserve(READ_BYTES);
    }
    let read = match reader.read_buf(input).await {
        // A process that was killed ends no encrypted connection in order; frames have lengths, so that nobody can cut one short.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    };
    match read {
        Ok(0) if input.is_empty() => Err("the other side closed the connection".to_owned()),
        Ok(0) => Err(format!(
            "the other side closed the connection in the middle of a frame, after {} bytes of it",
            input.len()
        )),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("read failed: {}", tls::reason(&error))),
    }
}

/// What was done to bring bytes on their way.
enum Written {
    /// So many were taken.
    Taken(usize),
    /// All that were taken are on their way.
    Flushed,
}

/// Writes some of what waits; where nothing does, brings on its way what was taken.
async fn write_some(writer: &mut Writer, output: &mut BytesMut) -> io::Result<Written> {
    if output.is_empty() {
        return writer.flush().await.map(|()| Written::Flushed);
    }
    writer.write_buf(output).await.map(Written::Taken)
}

/// What woke the driver.
enum Event {
    Read(Result<usize, String>),
    Wrote(io::Result<Written>),
    Call(Option<PendingCall>),
    Cancelled(Option<CallId>),
    Handled(Result<(tokio::task::Id, Result<Bytes, RpcError>), JoinError>),
    Time,
}

/// One connection after the hello.
pub(super) struct Connection {
    stream: FrameStream,
    core: SessionCore,
    config: TcpConfig,
    traffic: Arc<Traffic>,
    service: Option<Arc<dyn Service>>,
    origin: Instant,
    handlers: JoinSet<Result<Bytes, RpcError>>,
    running: HashMap<RequestId, AbortHandle>,
    started: HashMap<tokio::task::Id, (RequestId, String)>,
    callers: HashMap<CallId, oneshot::Sender<Result<Bytes, RpcError>>>,
    progress_at: Instant,
    used_at: Instant,
}

impl Connection {
    /// A connection to `peer`; `service` answers what the other side asks.
    pub(super) fn new(
        stream: FrameStream,
        peer: NodeId,
        service: Option<Arc<dyn Service>>,
        (config, traffic): (TcpConfig, Arc<Traffic>),
    ) -> Self {
        let now = Instant::now();
        Self {
            stream,
            core: SessionCore::new(peer, config.session, Duration::ZERO),
            config,
            traffic,
            service,
            origin: now,
            handlers: JoinSet::new(),
            running: HashMap::new(),
            started: HashMap::new(),
            callers: HashMap::new(),
            progress_at: now,
            used_at: now,
        }
    }

    /// Drives the connection to its end and ends every call on it.
    pub(super) async fn run(mut self, first: Option<PendingCall>, mut commands: Option<&mut Commands>) -> End {
        let traffic = Arc::clone(&self.traffic);
        let _open = traffic.opened();
        // What came with the hello is in already.
        let mut broken = self.received().and_then(|()| first.map_or(Ok(()), |call| self.call(call))).err();
        while broken.is_none() {
            let event = self.next_event(commands.as_deref_mut()).await;
            match self.on_event(event) {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(reason) => broken = Some(reason),
            }
        }
        let reason = broken.unwrap_or_default();
        let lost = self.core.step(SessionInput::Lost(reason.clone()), self.origin.elapsed());
        // Only completions and aborts follow a loss; the connection is gone whatever they say.
        let _closed = self.apply(lost);
        End::Broken(reason)
    }

    async fn next_event(&mut self, commands: Option<&mut Commands>) -> Event {
        let roomy = self.stream.output.len() < self.config.output_bytes_max / 2;
        let writing = self.stream.is_writing();
        let wake = self.next_wake(writing, commands.is_some());
        let (calls, cancels) = match commands {
            Some(commands) => (Some(&mut commands.calls), Some(&mut commands.cancels)),
            None => (None, None),
        };
        let next_call = async {
            match calls {
                Some(calls) => calls.recv().await,
                None => pending().await,
            }
        };
        let next_cancel = async {
            match cancels {
                Some(cancels) => cancels.recv().await,
                None => pending().await,
            }
        };
        // Every branch can be dropped without losing bytes: read_buf, write_buf, flush, recv and join_next are cancel safe.
        tokio::select! {
            read = read_some(&mut self.stream.reader, &mut self.stream.input), if roomy => Event::Read(read),
            wrote = write_some(&mut self.stream.writer, &mut self.stream.output), if writing => Event::Wrote(wrote),
            call = next_call, if roomy => Event::Call(call),
            cancel = next_cancel => Event::Cancelled(cancel),
            Some(handled) = self.handlers.join_next_with_id() => Event::Handled(handled),
            () = tokio::time::sleep_until(wake) => Event::Time,
        }
    }

    fn next_wake(&self, writing: bool, client: bool) -> Instant {
        let mut wake = self.origin + self.core.next_wake();
        if writing {
            wake = wake.min(self.progress_at + self.config.write_stall_max);
        }
        if client && self.core.is_idle() {
            wake = wake.min(self.used_at + self.config.idle_close);
        }
        wake
    }

    fn on_event(&mut self, event: Event) -> Result<Option<End>, String> {
        match event {
            Event::Read(read) => {
                self.traffic.received(read?);
                self.received()?;
            }
            Event::Wrote(wrote) => {
                match wrote.map_err(|error| format!("write failed: {}", tls::reason(&error)))? {
                    Written::Taken(0) => return Err("the other side accepts no more bytes".to_owned()),
                    Written::Taken(bytes) => {
                        self.stream.is_unflushed = self.stream.writer.keeps_bytes();
                        self.traffic.sent(bytes);
                    }
                    Written::Flushed => self.stream.is_unflushed = false,
                }
                self.progress_at = Instant::now();
            }
            Event::Call(Some(call)) => self.call(call)?,
            Event::Call(None) | Event::Cancelled(None) => return Ok(Some(End::Dropped)),
            Event::Cancelled(Some(id)) => {
                self.callers.remove(&id);
                self.step(SessionInput::Cancel(id))?;
            }
            Event::Handled(handled) => self.handled(handled)?,
            Event::Time => {
                let now = Instant::now();
                if self.stream.is_writing() && now >= self.progress_at + self.config.write_stall_max {
                    return Err(self.slow_consumer());
                }
                self.step(SessionInput::Tick)?;
                if self.service.is_none() && self.core.is_idle() && now >= self.used_at + self.config.idle_close {
                    return Ok(Some(End::Idle));
                }
            }
        }
        Ok(None)
    }

    fn received(&mut self) -> Result<(), String> {
        while let Some(frame) =
            frame::decode(&mut self.stream.input, self.config.frame_bytes_max).map_err(|error| error.to_string())?
        {
            self.step(SessionInput::Received(frame))?;
        }
        Ok(())
    }

    fn call(&mut self, call: PendingCall) -> Result<(), String> {
        // Its caller may have gone while it waited to be taken on.
        if call.reply.is_closed() {
            return Ok(());
        }
        self.used_at = Instant::now();
        let time_left = call.deadline.saturating_duration_since(self.used_at);
        self.callers.insert(call.id, call.reply);
        self.step(SessionInput::Call(call.id, Request { timeout: time_left, ..call.request }))
    }

    fn handled(
        &mut self,
        handled: Result<(tokio::task::Id, Result<Bytes, RpcError>), JoinError>,
    ) -> Result<(), String> {
        let task = match &handled {
            Ok((task, _)) => *task,
            Err(error) => error.id(),
        };
        let Some((request, method)) = self.started.remove(&task) else {
            return Ok(());
        };
        self.running.remove(&request);
        let result = match handled {
            Ok((_, result)) => result,
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => {
                tracing::error!(%method, %error, "a handler panicked");
                Err(RpcError::Failed { method })
            }
        };
        self.step(SessionInput::Handled(request, result))
    }

    fn step(&mut self, input: SessionInput) -> Result<(), String> {
        let actions = self.core.step(input, self.origin.elapsed());
        self.apply(actions)
    }

    fn apply(&mut self, actions: Vec<SessionAction>) -> Result<(), String> {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                SessionAction::Send(frame) => actions.extend(self.send(&frame)?),
                SessionAction::Start(id, context, body) => self.start(id, context, body),
                SessionAction::Abort(id) => {
                    if let Some(handler) = self.running.remove(&id) {
                        handler.abort();
                    }
                }
                SessionAction::Complete(id, result) => {
                    if let Some(caller) = self.callers.remove(&id) {
                        // A caller that went away in this moment needs no answer.
                        let _unwanted = caller.send(result);
                    }
                }
                SessionAction::Close(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    /// Queues a frame. One that is too large becomes an error of its own request instead.
    fn send(&mut self, frame: &Frame) -> Result<Vec<SessionAction>, String> {
        if !self.stream.is_writing() {
            self.progress_at = Instant::now();
        }
        let mut follow_up = Vec::new();
        if let Err(error) = frame::encode(frame, self.config.frame_bytes_max, &mut self.stream.output) {
            let malformed = Frame::answer(frame.request, Err(RpcError::Malformed { reason: error.to_string() }));
            match frame.message {
                Message::Request { .. } => {
                    follow_up = self.core.step(SessionInput::Received(malformed), self.origin.elapsed());
                }
                Message::Reply(_) | Message::Error(_) => {
                    frame::encode(&malformed, self.config.frame_bytes_max, &mut self.stream.output)
                        .map_err(|error| error.to_string())?;
                }
                _ => return Err(error.to_string()),
            }
        }
        if self.stream.output.len() > self.config.output_bytes_max {
            return Err(self.slow_consumer());
        }
        Ok(follow_up)
    }

    fn start(&mut self, id: RequestId, context: RequestContext, body: Bytes) {
        let method = context.head.method.clone();
        let service = self.service.clone();
        self.traffic.called();
        let handler = self.handlers.spawn(async move {
            match service {
                Some(service) => service.handle(context, body).await,
                None => Err(RpcError::Refused { reason: "this side of the connection only asks".to_owned() }),
            }
        });
        self.started.insert(handler.id(), (id, method));
        self.running.insert(id, handler);
    }

    fn slow_consumer(&self) -> String {
        format!(
            "node {} reads too slowly: {} bytes wait for it (limit {}, or {:?} without progress)",
            self.core.peer(),
            self.stream.output.len(),
            self.config.output_bytes_max,
            self.config.write_stall_max
        )
    }
}
