//! One client: its messages are read, done by its tenant, and answered.

use std::{
    collections::HashMap,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion, extendedquery::Bind};
use savanna_journal::Lsn;
use savanna_tenants::{
    Outcome, OutputColumn, SessionId, SqlError, Status,
    budget::Amounts,
    copy::CopyFormat,
    database::Step,
    error::{Result, state},
    interrupt::{Interrupts, Reason},
    settings::{SERVER_VERSION, Timeouts},
    tenant::{Given, Login, Tenant},
};
use tokio::sync::Notify;

use crate::{
    alarm::Alarm,
    copy,
    output::{self, Output},
    process::Key,
    room::{Room, Visit},
    socket::Socket,
    tenants,
    thread::{Client, Here, Known},
};

/// A message that is longer is not read.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Answers of more bytes leave before all is done.
const OUTPUT_BYTES: usize = 256 << 10;
/// Bytes of lines that one COPY takes.
const COPY_BYTES_MAX: usize = 64 << 20;

/// How long answers wait before the lease is looked at again.
const LEASE_LOOK: Duration = Duration::from_millis(20);
/// What reading and answering a statement costs beside running it.
const PROTOCOL_TIME: Duration = Duration::from_micros(6);
/// All tenants are entitled to the same.
const WEIGHT: u32 = 1;

/// Why a connection ends.
enum End {
    /// The client went away, or can no longer be understood.
    Socket(io::Error),
    /// It is told why, and sent away.
    Fatal(SqlError),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

type Served<T> = std::result::Result<T, End>;

/// Serves a client until it goes away.
pub(crate) async fn serve(here: Rc<Here>, visit: Visit, client: Client) {
    let room = Rc::clone(visit.room());
    let Client { socket, input, user, database, settings, administrator, key, seed } = client;
    let socket = match socket.resume() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a client's socket could not be taken over");
            return;
        }
    };
    let mut output = Output::default();
    let login = Login { user: &user, database: &database, administrator, seed };
    let opened = room.with(|tenant| open(tenant, login, &settings)).await;
    let (session, told) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            output.error("FATAL", &error);
            let mut socket = socket;
            if let Err(error) = socket.write_all(&output.bytes).await {
                tracing::debug!(%error, "a client went away at the door");
            }
            return;
        }
    };
    let told: Vec<(&str, String)> = told.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    output.welcome(&told, key);
    output.ready(Status::Idle);
    let woken = room.waits(session);
    let (interrupts, timeouts) = room.with(|tenant| (tenant.interrupts(session), tenant.timeouts(session))).await;
    here.connections.borrow_mut().insert(key, Known { room: Rc::clone(&room), session });
    here.process.connected(key, Arc::clone(&interrupts), here.number);
    // Whatever ends the connection, also a panic, ends the session.
    let (leaving_room, statement) = (Rc::clone(&room), Arc::clone(&interrupts));
    let _leaving = Leaving { here: Rc::clone(&here), room: leaving_room, session, key, interrupts: statement };
    let mut connection = Connection {
        here,
        room,
        spent: Spent::default(),
        session,
        key,
        interrupts,
        timeouts,
        woken,
        socket,
        input,
        output,
        after: Lsn::NONE,
        context: running(),
        formats: HashMap::new(),
        skipping: false,
        ready: true,
    };
    match connection.talk().await {
        Ok(()) => {}
        Err(End::Socket(error)) => tracing::debug!(%error, "a client went away"),
        Err(End::Fatal(error)) => {
            connection.output.error("FATAL", &error);
            if let Err(error) = connection.send().await {
                let error = match error {
                    End::Socket(error) => error.to_string(),
                    End::Fatal(error) => error.to_string(),
                };
                tracing::debug!(error, "a client went away before it was told why it is sent away");
            }
        }
    }
}

/// Tells a client why it cannot come in.
pub(crate) async fn refuse(client: Client, error: SqlError) {
    let mut output = Output::default();
    output.error("FATAL", &error);
    let told = async { client.socket.resume()?.write_all(&output.bytes).await };
    if let Err(error) = told.await {
        tracing::debug!(%error, "a client went away at the door");
    }
}

/// Opens a session with the settings of the startup message; what the client is told of the server.
fn open(
    tenant: &mut Tenant,
    login: Login<'_>,
    settings: &[(String, String)],
) -> Result<(SessionId, Vec<(String, String)>)> {
    let session = tenant.open_session(login)?;
    let mut name = String::new();
    for (setting, value) in settings {
        // Options of the protocol itself.
        if setting.starts_with("_pq_.") {
            continue;
        }
        let set = match setting.as_str() {
            "options" => command_line(value).and_then(|settings| {
                settings.iter().try_for_each(|(setting, value)| tenant.set(session, setting, value))
            }),
            setting => tenant.set(session, setting, value),
        };
        if let Err(error) = set {
            tenant.close_session(session);
            return Err(error);
        }
        if setting == "application_name" {
            name.clone_from(value);
        }
    }
    let told = [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("application_name", &name),
        ("is_superuser", "on"),
        ("session_authorization", login.user),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
    ];
    Ok((session, told.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()))
}

/// The settings of a command line as clients send it, `-c name=value` or `--name=value`. A backslash makes the next character
/// one of a word.
fn command_line(line: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().into_iter().for_each(|word| word.extend(characters.next())),
            space if space.is_whitespace() => words.push(String::new()),
            other => words.last_mut().into_iter().for_each(|word| word.push(other)),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let assignment = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (None, Some("")) => words.next().unwrap_or_default(),
            (Some(assignment), _) | (None, Some(assignment)) => assignment.to_owned(),
            (None, None) => String::new(),
        };
        let Some((name, value)) = assignment.split_once('=') else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(SqlError::new(state::SYNTAX_ERROR, message).hint("Write settings as \"-c name=value\"."));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn running() -> DecodeContext {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    context
}

/// Ends a session when its connection does.
struct Leaving {
    here: Rc<Here>,
    room: Rc<Room>,
    session: SessionId,
    key: Key,
    interrupts: Arc<Interrupts>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.here.connections.borrow_mut().remove(&self.key);
        self.here.process.disconnected(self.key);
        // If its statement still runs, nobody wants to know what comes of it.
        self.interrupts.interrupt(Reason::Cancelled);
        self.room.leave(self.session);
    }
}

struct Connection {
    here: Rc<Here>,
    room: Rc<Room>,
    /// What its last statement has cost.
    spent: Spent,
    session: SessionId,
    key: Key,
    interrupts: Arc<Interrupts>,
    timeouts: Timeouts,
    woken: Rc<Notify>,
    socket: Socket,
    input: BytesMut,
    output: Output,
    /// The log must be durable up to here before the output may leave.
    after: Lsn,
    context: DecodeContext,
    /// The formats of portals' columns.
    formats: HashMap<String, Vec<i16>>,
    /// After an error of the extended protocol: nothing is done up to Sync.
    skipping: bool,
    /// Whether the client was told that it may go on, and has not.
    ready: bool,
}

#[derive(Debug, Default)]
struct Spent {
    time: Duration,
    log_bytes: u64,
}

/// What came of something that was done with the tenant, beside its result.
struct Trace {
    spent: Spent,
    timeouts: Timeouts,
    /// The answer may leave when the log is durable up to here.
    after: Lsn,
    notices: Vec<String>,
}

/// Work on the tenant for a session, and its trace.
fn traced<T>(session: SessionId, work: impl FnOnce(&mut Tenant) -> T) -> impl FnOnce(&mut Tenant) -> (T, Trace) {
    move |tenant| {
        let (began, before) = (Instant::now(), tenant.database().logged_bytes());
        let result = work(tenant);
        let spent = Spent { time: began.elapsed(), log_bytes: tenant.database().logged_bytes() - before };
        let (timeouts, after, notices) =
            (tenant.timeouts(session), tenant.reply_after(session), tenant.notices(session));
        (result, Trace { spent, timeouts, after, notices })
    }
}

impl Connection {
    async fn talk(&mut self) -> Served<()> {
        loop {
            while let Some(message) = self.decode()? {
                if matches!(message, PgWireFrontendMessage::Terminate(_)) {
                    return Ok(());
                }
                self.obey(message).await?;
                if self.output.bytes.len() >= OUTPUT_BYTES {
                    self.send().await?;
                }
            }
            // As in PostgreSQL, what a pipeline came to leaves at its end, when the client asks for it, or when something failed.
            if self.ready || self.skipping {
                self.send().await?;
            }
            if self.hear().await? == 0 {
                return Ok(());
            }
        }
    }

    /// Hears more of the client, unless it pauses for too long.
    async fn hear(&mut self) -> Served<usize> {
        let Timeouts { idle_in_transaction, idle, .. } = self.timeouts;
        if !self.ready || (idle_in_transaction, idle) == (0, 0) {
            return Ok(self.socket.read(&mut self.input).await?);
        }
        let session = self.session;
        let (millis, state, what) = match self.tenant(|tenant| tenant.status(session)).await {
            Status::Idle => (idle, "57P05", "idle-session"),
            Status::Transaction | Status::Failed => (idle_in_transaction, "25P03", "idle-in-transaction"),
        };
        let read = self.socket.read(&mut self.input);
        match millis {
            0 => Ok(read.await?),
            millis => match tokio::time::timeout(Duration::from_millis(millis.into()), read).await {
                Ok(read) => Ok(read?),
                Err(_) => {
                    Err(End::Fatal(SqlError::new(state, format!("terminating connection due to {what} timeout"))))
                }
            },
        }
    }

    /// The next message, if it has come as a whole.
    fn decode(&mut self) -> Served<Option<PgWireFrontendMessage>> {
        let Some(head) = self.input.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            let message = format!("expected a message of 4 to {MESSAGE_BYTES_MAX} bytes, came a length of {length}");
            return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
        }
        if self.input.len() <= length {
            return Ok(None);
        }
        // The decoder sees this message only, whatever counts it has inside.
        let mut message = self.input.split_to(length + 1);
        let broken = |what: String| End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, what));
        match PgWireFrontendMessage::decode(&mut message, &self.context) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => Err(broken("the client sent half a message".to_owned())),
            Err(error) => Err(broken(format!("the client sent what is no message of the protocol: {error}"))),
        }
    }

    async fn obey(&mut self, message: PgWireFrontendMessage) -> Served<()> {
        use PgWireFrontendMessage as M;
        if self.skipping && !matches!(message, M::Sync(_)) {
            return Ok(());
        }
        if matches!(message, M::Query(_) | M::Execute(_)) {
            self.wait_for_budget().await;
        }
        let session = self.session;
        self.ready = false;
        let outcome = match message {
            M::Query(query) => {
                self.query(&query.query).await?;
                self.pay();
                return Ok(());
            }
            M::Sync(_) => return self.sync().await,
            M::Flush(_) => return self.send().await,
            M::Parse(parse) => {
                let name = parse.name.unwrap_or_default();
                let work = |tenant: &mut Tenant| tenant.parse(session, &name, &parse.query, &parse.type_oids);
                let parsed = self.tenant(work).await;
                parsed.map(|()| self.output.parsed())
            }
            M::Bind(bind) => self.bind(bind).await,
            M::Describe(describe) => {
                let name = describe.name.unwrap_or_default();
                match describe.target_type {
                    b'S' => {
                        let described = self.tenant(|tenant| tenant.describe_statement(session, &name)).await;
                        described.map(|(types, columns)| {
                            self.output.parameters(&types);
                            self.describe(columns.as_deref(), &[]);
                        })
                    }
                    _ => self.tenant(|tenant| tenant.describe_portal(session, &name)).await.map(|columns| {
                        let formats = self.formats.get(&name).cloned().unwrap_or_default();
                        self.describe(columns.as_deref(), &formats);
                    }),
                }
            }
            M::Execute(execute) => {
                let name = execute.name.unwrap_or_default();
                let outcome = self.execute(&name, usize::try_from(execute.max_rows).unwrap_or(0)).await?;
                self.pay();
                outcome
            }
            M::Close(close) => {
                let name = close.name.unwrap_or_default();
                if close.target_type == b'S' {
                    self.tenant(|tenant| tenant.close_statement(session, &name)).await;
                } else {
                    self.formats.remove(&name);
                    self.tenant(|tenant| tenant.close_portal(session, &name)).await;
                }
                self.output.closed();
                Ok(())
            }
            // What is left of a COPY that failed.
            M::CopyData(_) | M::CopyDone(_) | M::CopyFail(_) => Ok(()),
            _ => {
                let error =
                    SqlError::new(state::PROTOCOL_VIOLATION, "the client sent a message that has no place here");
                return Err(End::Fatal(error));
            }
        };
        if let Err(error) = outcome {
            self.output.error("ERROR", &error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Does something with the tenant.
    async fn tenant<T>(&mut self, work: impl FnOnce(&mut Tenant) -> T) -> T {
        let traced = self.room.with(traced(self.session, work)).await;
        self.note(traced)
    }

    /// Does something that takes long with the tenant, where it is in no other tenant's way.
    async fn tenant_aside<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Tenant) -> T + Send + 'static) -> T {
        let traced = self.room.with_aside(traced(self.session, work)).await;
        self.note(traced)
    }

    fn note<T>(&mut self, (result, trace): (T, Trace)) -> T {
        let Trace { spent, timeouts, after, notices } = trace;
        self.spent.time += spent.time;
        self.spent.log_bytes += spent.log_bytes;
        self.timeouts = timeouts;
        self.after = self.after.max(after);
        for notice in notices {
            self.output.notice(&notice);
        }
        result
    }

    /// Runs a statement of the tenant's until it need not wait any more, or its time is over.
    async fn until_done<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Tenant) -> Result<Step<T>> + Clone + Send + 'static,
    ) -> Served<Result<T>> {
        let _alarm = self.alarm();
        let session = self.session;
        let mut aside = false;
        loop {
            let step = match aside {
                false => self.tenant(&work).await,
                true => self.tenant_aside(work.clone()).await,
            };
            match step {
                Ok(Step::Done(value)) => return Ok(Ok(value)),
                Ok(Step::Wait) if self.tenant(|tenant| tenant.gives_way(session)).await => aside = true,
                Ok(Step::Wait) => self.wait().await?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Waits until the tenant may begin a statement.
    async fn wait_for_budget(&self) {
        let began = self.here.began;
        loop {
            let ask_again = {
                let mut budget = self.here.budget.borrow_mut();
                if budget.admits(self.room.id, began.elapsed()) {
                    return;
                }
                budget.ask_again()
            };
            tokio::time::sleep_until((began + ask_again).into()).await;
        }
    }

    /// Pays for a statement.
    fn pay(&mut self) {
        let Spent { time, log_bytes } = std::mem::take(&mut self.spent);
        let time = time + PROTOCOL_TIME;
        let spent = Amounts::new(time.as_micros() as u64, log_bytes, self.room.take_requests());
        self.here.budget.borrow_mut().charge(self.room.id, WEIGHT, spent, self.here.began.elapsed());
    }

    /// What ends the next statement after its time.
    fn alarm(&self) -> Option<Alarm> {
        let time = Duration::from_millis(self.timeouts.statement.into());
        (!time.is_zero()).then(|| Alarm::set(&self.here.process, self.key, &self.interrupts, time))
    }

    /// Waits until the session is woken, which it also is when it has waited for a lock for too long.
    async fn wait(&mut self) -> Served<()> {
        let session = self.session;
        if self.timeouts.lock > 0 && self.room.with(|tenant| tenant.waits_for_lock(session)).await {
            let time = Duration::from_millis(self.timeouts.lock.into());
            match tokio::time::timeout(time, self.until_woken()).await {
                Ok(woken) => return woken,
                Err(_) => self.tenant(|tenant| tenant.interrupt(session, Reason::LockTimeout)).await,
            }
        }
        self.until_woken().await
    }

    /// Waits until the session is woken. Meanwhile the client may go away.
    async fn until_woken(&mut self) -> Served<()> {
        let woken = Rc::clone(&self.woken);
        loop {
            if self.input.len() > MESSAGE_BYTES_MAX {
                woken.notified().await;
                return Ok(());
            }
            tokio::select! {
                biased;
                () = woken.notified() => return Ok(()),
                read = self.socket.read(&mut self.input) => {
                    if read? == 0 {
                        return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
        }
    }

    /// Sends what has been collected, once it may be told.
    async fn send(&mut self) -> Served<()> {
        if self.output.bytes.is_empty() {
            return Ok(());
        }
        self.gate().await?;
        let bytes = std::mem::take(&mut self.output.bytes);
        self.socket.write_all(&bytes).await?;
        // The memory is used again, unless it was much.
        if bytes.capacity() <= 2 * OUTPUT_BYTES {
            self.output.bytes = bytes;
            self.output.bytes.clear();
        }
        Ok(())
    }

    /// Waits until the log is durable up to what the answers depend on, and this process may speak for its tenants.
    async fn gate(&mut self) -> Served<()> {
        let after = std::mem::take(&mut self.after);
        if after > self.here.process.journal.durable()
            && let Err(error) = self.here.process.journal.wait_durable(after).await
        {
            // What was collected may not be true: nobody hears of it.
            self.output.bytes.clear();
            tracing::error!(%error, "the tenants' log failed");
            return Err(End::Fatal(error.into()));
        }
        // One that is renewed late serves again; one that is lost ends the server, and nobody hears of this.
        while self.here.lease.as_ref().is_some_and(|lease| !lease.serving()) {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        Ok(())
    }

    /// A simple query: each statement in turn, all of them one transaction unless the text says otherwise.
    async fn query(&mut self, text: &str) -> Served<()> {
        let session = self.session;
        let outcome = match self.tenant(|tenant| tenant.split(session, text)).await {
            Ok(statements) => self.statements(statements).await?,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.output.error("ERROR", &error);
        }
        self.formats.clear();
        let status = self.tenant(|tenant| tenant.status(session)).await;
        self.output.ready(status);
        self.ready = true;
        Ok(())
    }

    async fn statements(&mut self, statements: Vec<String>) -> Served<Result<()>> {
        if statements.is_empty() {
            self.output.empty();
        }
        let (session, last) = (self.session, statements.len());
        for (number, text) in (1..).zip(statements) {
            let ran = self.until_done(move |tenant| tenant.run(session, &text)).await?;
            let (mut outcome, columns) = match ran {
                Ok(ran) => ran,
                Err(error) => return Ok(Err(error)),
            };
            if let Outcome::CopyIn { columns, format } = &outcome {
                outcome = match self.take_rows(columns, format).await? {
                    Ok(outcome) => outcome,
                    Err(error) => return Ok(Err(error)),
                };
            }
            if let (Outcome::Rows { .. }, Some(columns)) = (&outcome, &columns) {
                self.output.columns(columns, &[]);
            }
            // The last statement is told of when its transaction is over.
            if number == last {
                let finished = self.until_done(move |tenant| tenant.finish(session)).await?;
                if let Err(error) = finished {
                    return Ok(Err(error));
                }
            }
            if let Err(error) = self.tell(outcome, columns.as_deref().unwrap_or_default(), &[]).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Tells what came of a statement.
    async fn tell(&mut self, outcome: Outcome, columns: &[OutputColumn], formats: &[i16]) -> Served<Result<()>> {
        match outcome {
            Outcome::Empty => self.output.empty(),
            Outcome::Done { tag } => self.output.complete(&tag),
            Outcome::Rows { tag, rows, end } => {
                for row in rows {
                    self.output.row(&row, columns, formats);
                    if self.output.bytes.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                if end {
                    self.output.complete(&tag);
                } else {
                    self.output.suspended();
                }
            }
            Outcome::CopyOut { columns, rows, format } => {
                self.output.copy_out(columns.len(), &format);
                self.output.copy_data(copy::begin(&columns, &format));
                let count = rows.len();
                for row in rows {
                    self.output.copy_data(copy::row(&row, &columns, &format));
                    if self.output.bytes.len() >= OUTPUT_BYTES {
                        self.send().await?;
                    }
                }
                self.output.copy_data(copy::end(&format));
                self.output.copy_done();
                self.output.complete(&format!("COPY {count}"));
            }
            Outcome::CopyIn { .. } => return Ok(Err(SqlError::internal("lines are wanted twice"))),
            Outcome::CreateDatabase(name) => {
                let created = self.here.process.create(&name);
                match created {
                    Ok(lsn) => {
                        self.after = self.after.max(lsn);
                        self.output.complete("CREATE DATABASE");
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
            Outcome::DropDatabase { name, if_exists } => return Ok(self.drop_database(&name, if_exists).await),
        }
        Ok(Ok(()))
    }

    async fn drop_database(&mut self, name: &str, if_exists: bool) -> Result<()> {
        let removed = tenants::remove(&self.here.process, name).await;
        let lsn = match removed {
            Ok(lsn) => lsn,
            Err(error) if if_exists && error.state == state::INVALID_CATALOG_NAME => {
                self.output.notice(&format!("database \"{name}\" does not exist, skipping"));
                self.output.complete("DROP DATABASE");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.after = self.after.max(lsn);
        self.output.complete("DROP DATABASE");
        Ok(())
    }

    /// Takes the rows of a COPY from the client.
    async fn take_rows(&mut self, columns: &[String], format: &CopyFormat) -> Served<Result<Outcome>> {
        use PgWireFrontendMessage as M;
        self.output.copy_in(columns.len(), format);
        self.send().await?;
        let mut text = Vec::new();
        let mut refused = None;
        loop {
            let Some(message) = self.decode()? else {
                if self.socket.read(&mut self.input).await? == 0 {
                    return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
                }
                continue;
            };
            match message {
                M::CopyData(data) if text.len() + data.data.len() <= COPY_BYTES_MAX => text.extend(&data.data[..]),
                // What follows is read and forgotten: only its end can be answered.
                M::CopyData(_) => {
                    text.clear();
                    let message = format!("a COPY takes at most {} MiB", COPY_BYTES_MAX >> 20);
                    let error = SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message);
                    refused.get_or_insert_with(|| error.hint("Copy in several parts."));
                }
                M::CopyDone(_) => break,
                M::CopyFail(fail) => {
                    let message = format!("COPY from stdin failed: {}", fail.message);
                    refused = Some(SqlError::new(state::QUERY_CANCELED, message));
                    break;
                }
                M::Flush(_) | M::Sync(_) => {}
                _ => {
                    let message = "expected the rows of a COPY, came another message";
                    return Err(End::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
                }
            }
        }
        let session = self.session;
        let rows = match refused.map_or_else(|| copy::parse(&text, columns, format), Err) {
            Ok(rows) => Arc::new(rows),
            Err(error) => {
                self.tenant(|tenant| tenant.copy_fail(session)).await;
                return Ok(Err(error));
            }
        };
        self.until_done(move |tenant| tenant.copy_in(session, &rows)).await
    }

    async fn bind(&mut self, bind: Bind) -> Result<()> {
        let (portal, statement) = (bind.portal_name.unwrap_or_default(), bind.statement_name.unwrap_or_default());
        let codes = &bind.parameter_format_codes;
        let session = self.session;
        if let Some(other) = codes.iter().find(|code| !matches!(code, 0 | 1)) {
            self.tenant(|tenant| tenant.fail(session)).await;
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, format!("unsupported format code: {other}")));
        }
        let mut given = Vec::with_capacity(bind.parameters.len());
        for (at, parameter) in bind.parameters.iter().enumerate() {
            given.push(match (parameter, output::format(codes, at)) {
                (None, _) => Given::Null,
                (Some(bytes), 0) => Given::Text(bytes),
                (Some(bytes), _) => Given::Binary(bytes),
            });
        }
        self.tenant(|tenant| tenant.bind(session, &portal, &statement, &given)).await?;
        self.formats.insert(portal, bind.result_column_format_codes);
        self.output.bound();
        Ok(())
    }

    fn describe(&mut self, columns: Option<&[OutputColumn]>, formats: &[i16]) {
        match columns {
            Some(columns) => self.output.columns(columns, formats),
            None => self.output.no_data(),
        }
    }

    async fn execute(&mut self, name: &str, rows_max: usize) -> Served<Result<()>> {
        let session = self.session;
        let columns = match self.tenant(|tenant| tenant.describe_portal(session, name)).await {
            Ok(columns) => columns.unwrap_or_default(),
            Err(error) => return Ok(Err(error)),
        };
        let portal = name.to_owned();
        let executed = self.until_done(move |tenant| tenant.execute(session, &portal, rows_max)).await?;
        let mut outcome = match executed {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        if let Outcome::CopyIn { columns, format } = &outcome {
            outcome = match self.take_rows(columns, format).await? {
                Ok(outcome) => outcome,
                Err(error) => return Ok(Err(error)),
            };
        }
        let formats = self.formats.get(name).cloned().unwrap_or_default();
        self.tell(outcome, &columns, &formats).await
    }

    /// The end of what belongs together in the extended protocol: a transaction that the client did not begin ends here.
    async fn sync(&mut self) -> Served<()> {
        self.skipping = false;
        let session = self.session;
        let finished = self.until_done(move |tenant| tenant.finish(session)).await?;
        if let Err(error) = finished {
            self.output.error("ERROR", &error);
        }
        let status = self.tenant(|tenant| tenant.status(session)).await;
        if status == Status::Idle {
            self.formats.clear();
        }
        self.output.ready(status);
        self.ready = true;
        Ok(())
    }
}
