//! How a connection begins: its session, and what the client is told of the server; or why it cannot come in.

use std::{io, pin::pin, time::Duration};

use bytes::BytesMut;
use savanna_tenants::{
    SessionId, SqlError,
    error::{Result, state},
    settings::SERVER_VERSION,
    tenant::{Login, Notice, Tenant},
};

use crate::{output::Output, room::Room, socket::Socket, thread::Client};

/// Who waits for longer is told for what.
const SILENCE: Duration = Duration::from_secs(1);
/// So much is read of a client that is not in yet.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Tells a client why it cannot come in.
pub(crate) async fn refuse(client: Client, error: SqlError) {
    match client.socket.resume() {
        Ok(socket) => turn_away(socket, &error).await,
        Err(error) => tracing::warn!(%error, "a client's socket could not be taken over"),
    }
}

/// Tells a client that was about to come in why it cannot.
pub(super) async fn turn_away(mut socket: Socket, error: &SqlError) {
    let mut output = Output::default();
    output.error("FATAL", error);
    match socket.write_all(&output.bytes).await {
        Ok(()) => socket.close(),
        Err(error) => tracing::debug!(%error, "a client went away at the door"),
    }
}

/// Waits until a database is not busy with a statement of somebody else. Whoever waits is told so, and is not let in after `patience`.
pub(super) async fn until_free(
    room: &Room,
    (socket, input): (&mut Socket, &mut BytesMut),
    output: &mut Output,
    patience: Duration,
) -> io::Result<Result<()>> {
    if tokio::time::timeout(SILENCE, room.here()).await.is_ok() {
        return Ok(Ok(()));
    }
    let message = "the database is busy with a statement that takes long; the login waits for it";
    output.notice(&Notice::Notice(message.to_owned()));
    socket.write_all(&output.bytes.split()).await?;
    let mut free = pin!(tokio::time::timeout(patience.saturating_sub(SILENCE), room.here()));
    loop {
        tokio::select! {
            biased;
            free = &mut free => return Ok(free.map_err(|_| {
                SqlError::new("57P03", "the database is busy with a statement that takes long").hint(
                    "Try again later. In another database an administrator sees the statement's connection in pg_stat_activity, and ends the \
                     statement with pg_cancel_backend(pid).",
                )
            })),
            read = socket.read(input), if input.len() <= AHEAD_BYTES_MAX => if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            },
        }
    }
}

/// Opens a session with the settings of the startup message; what the client is told of the server.
pub(super) fn open(
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
    tenant.begin_session(session);
    let zone = tenant.zone(session).name();
    let told = [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("application_name", &name),
        ("is_superuser", if login.administrator { "on" } else { "off" }),
        ("session_authorization", login.user),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", &zone),
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
