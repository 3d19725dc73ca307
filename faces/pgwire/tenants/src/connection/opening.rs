//! How a connection begins: its session, and what the client is told of the server; or why it cannot come in.

use std::{io, pin::pin, time::Duration};

use savanna_pgwire_login::Socket;
use savanna_tenants_host::{
    ConnectionGuard, Identity, Notice, SERVER_VERSION, Session, SqlError,
    error::{Result, state},
};

use super::Beginning;
use crate::wire::{ClientWire, put_notice, refusal};

/// Who waits for longer is told for what.
const SILENCE: Duration = Duration::from_secs(1);
/// So much is read of a client that is not in yet.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Tells a client that was about to come in why it cannot.
pub(super) async fn send_away(mut socket: impl Socket, error: SqlError) {
    match socket.write_all(&refusal(error).bytes).await {
        Ok(()) => socket.close().await,
        Err(error) => tracing::debug!(%error, "a client went away before it was told why it is sent away"),
    }
}

/// Opens a session with the settings of the startup message, when the database is not busy, and says what the client is told of the server; or one that goes on.
pub(super) async fn open(
    guard: ConnectionGuard,
    wire: &mut ClientWire<impl Socket>,
    identity: Identity,
    begins: Beginning,
) -> io::Result<Result<Session>> {
    let settings = match begins {
        Beginning::New(settings) => settings,
        Beginning::Departed(departed) => return Ok(guard.reopen(identity, &departed).await),
    };
    if let Err(error) = until_free(&guard, wire).await? {
        return Ok(Err(error));
    }
    let settings = match expanded(settings) {
        Ok(settings) => settings,
        Err(error) => return Ok(Err(error)),
    };
    let opened = guard.open(identity, &settings).await;
    Ok(opened.inspect(|session| welcome(wire, session, &settings)))
}

/// Waits until a database is not busy with a statement of somebody else. Whoever waits is told so, and is not let in after the host's
/// patience.
async fn until_free(guard: &ConnectionGuard, wire: &mut ClientWire<impl Socket>) -> io::Result<Result<()>> {
    if guard.free_within(SILENCE).await.is_ok() {
        return Ok(Ok(()));
    }
    let message = "the database is busy with a long statement; the login waits for its end";
    put_notice(wire.output(), &Notice::plain(message));
    let told = wire.output().bytes.split();
    wire.wire.socket.write_all(&told).await?;
    let mut free = pin!(guard.free_within(guard.patience().saturating_sub(SILENCE)));
    tokio::select! {
        biased;
        free = &mut free => Ok(free),
        error = wire.wire.gone_beyond(AHEAD_BYTES_MAX) => Err(error),
    }
}

/// Tells a client what it is told of the server.
fn welcome(wire: &mut ClientWire<impl Socket>, session: &Session, settings: &[(String, String)]) {
    let Identity { user, administrator, .. } = session.identity();
    let named = settings.iter().rfind(|(setting, _)| setting == "application_name");
    let (dates, zone) = (session.style().date_style(), session.style().zone.name());
    let told = [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", session.encoding().name()),
        ("application_name", named.map_or("", |(_, name)| name)),
        ("is_superuser", if *administrator { "on" } else { "off" }),
        ("session_authorization", user),
        ("DateStyle", &dates),
        ("IntervalStyle", session.style().interval_style()),
        ("TimeZone", &zone),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
    ];
    wire.output().welcome(&told, session.key());
}

/// The settings of a startup message, one by one.
fn expanded(settings: Vec<(String, String)>) -> Result<Vec<(String, String)>> {
    let mut expanded = Vec::new();
    for (setting, value) in settings {
        match setting.as_str() {
            // Options of the protocol itself.
            protocol if protocol.starts_with("_pq_.") => {}
            "options" => expanded.extend(command_line(&value)?),
            _ => expanded.push((setting, value)),
        }
    }
    Ok(expanded)
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
