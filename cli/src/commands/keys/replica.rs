//! A Redis that is brought over while it is used: this process is its replica (`PSYNC`), and does at the target what the Redis does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Url;
use savanna_keys_rdb::FileReader;

use super::connection::{Connection, Reply};
use super::import::{Counts, all_of, unread};
use super::target::Target;
use crate::error::CliError;

/// A Redis wants to hear at least every minute (`repl-timeout`) how far its replica is.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Who hears nothing for so long has all that there was.
const SILENCE: Duration = Duration::from_millis(500);
/// How long the rest of a command that has begun to come may take.
const COMMAND_TIME: Duration = Duration::from_secs(60);
/// How long the rest is waited for once the user has said that nobody writes there any more.
const REST_MAX: Duration = Duration::from_secs(10);

/// A Redis whose replica this process is.
pub(super) struct Master {
    link: Connection,
    /// For questions about the Redis itself.
    questions: Connection,
    /// The place in its history up to which it was read when `received` bytes had come.
    start: (u64, u64),
    told: Instant,
}

/// What a Redis sends first: so many bytes of a file, or a file that is followed by a mark.
enum Extent {
    Bytes(u64),
    Marked,
}

const MARK_BYTES: usize = 40;

impl Master {
    pub(super) fn connect(url: &Url, ca_file: Option<&std::path::Path>) -> Result<Self, CliError> {
        let mut link = Connection::open(url, ca_file)?;
        link.ask(&[b"PING"])?;
        link.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        let questions = Connection::open(url, ca_file)?;
        Ok(Self { link, questions, start: (0, 0), told: Instant::now() })
    }

    /// Brings over all keys that it has now.
    pub(super) fn copy(&mut self, target: &mut Target, replaces: bool) -> Result<Counts, CliError> {
        self.link.note(&[b"PSYNC", b"?", b"-1"]);
        self.link.send().map_err(lost)?;
        let answer = self.line_with_text()?;
        let offset = answer.strip_prefix("+FULLRESYNC ").and_then(|answer| answer.split(' ').nth(1)?.parse().ok());
        let offset: u64 = offset.ok_or_else(|| {
            CliError::Refused(format!("PSYNC: expected `+FULLRESYNC id offset`, the server answers `{answer}`"))
        })?;
        eprintln!("waiting for the Redis to write its keys ..");
        let extent = self.extent()?;
        let mut file = FileReader::new(self.link.raw()).map_err(|error| unread(&error))?;
        let all = if let Extent::Bytes(bytes) = extent { Some(bytes) } else { None };
        let counts = all_of(&mut file, all, target, replaces)?;
        if let Extent::Marked = extent {
            let mut mark = [0; MARK_BYTES];
            std::io::Read::read_exact(self.link.raw(), &mut mark).map_err(lost)?;
        }
        self.start = (offset, self.link.received());
        self.tell()?;
        Ok(counts)
    }

    /// The next line that is not empty: it sends empty ones while it prepares the file.
    fn line_with_text(&mut self) -> Result<String, CliError> {
        loop {
            let line = self.link.line().map_err(lost)?;
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }

    fn extent(&mut self) -> Result<Extent, CliError> {
        let line = self.line_with_text()?;
        let extent = match line.strip_prefix('$') {
            Some(mark) if mark.starts_with("EOF:") => Some(Extent::Marked),
            Some(length) => length.parse().ok().map(Extent::Bytes),
            None => None,
        };
        extent.ok_or_else(|| CliError::Refused(format!("PSYNC: expected a file, the server answers `{line}`")))
    }

    /// Up to which place of the Redis' history everything was read.
    const fn position(&self) -> u64 {
        let (offset, received) = self.start;
        offset + (self.link.received() - received)
    }

    fn tell(&mut self) -> Result<(), CliError> {
        self.told = Instant::now();
        let position = self.position().to_string();
        self.link.note(&[b"REPLCONF", b"ACK", position.as_bytes()]);
        self.link.send().map_err(lost)
    }

    /// Does at the target what the Redis does, until `stop`, and then until nothing more comes. Gives how many commands that were, and
    /// how many bytes of its history are missing.
    pub(super) fn follow(&mut self, target: &mut Target, stop: &AtomicBool) -> Result<(u64, u64), CliError> {
        let (mut commands, mut stopped) = (0, None);
        loop {
            self.link.wait_at_most(Some(SILENCE)).map_err(lost)?;
            let first = self.link.peek();
            match first {
                Ok(()) => {
                    self.link.wait_at_most(Some(COMMAND_TIME)).map_err(lost)?;
                    commands += self.take_in(target)?;
                }
                Err(error) if is_silence(&error) => {
                    target.finish()?;
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Err(error) => return Err(lost(error)),
            }
            if self.told.elapsed() >= TELL_EVERY {
                self.tell()?;
            }
            if stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > REST_MAX {
                break;
            }
        }
        target.finish()?;
        let there = self.history()?;
        Ok((commands, there.saturating_sub(self.position())))
    }

    /// Passes on what is here.
    fn take_in(&mut self, target: &mut Target) -> Result<u64, CliError> {
        let mut commands = 0;
        loop {
            let Reply::List(parts) = self.link.reply().map_err(lost)? else {
                return Err(CliError::Refused("the Redis sent something else than a command".into()));
            };
            let words: Vec<&[u8]> =
                parts.iter().map(|part| if let Reply::Bytes(word) = part { word } else { &[][..] }).collect();
            let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
            match name.as_slice() {
                b"PING" => {}
                b"REPLCONF" => self.tell()?,
                _ => {
                    commands += 1;
                    let subject = || {
                        words.iter().take(2).map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
                    };
                    target.put(subject, &words)?;
                }
            }
            if !self.link.has_more() {
                return Ok(commands);
            }
        }
    }

    /// How far the history of the Redis goes.
    fn history(&mut self) -> Result<u64, CliError> {
        let answer = self.questions.ask(&[b"INFO", b"replication"])?;
        let Reply::Bytes(text) = answer else { return Ok(0) };
        let text = String::from_utf8_lossy(&text).into_owned();
        let offset = text.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        Ok(offset.and_then(|offset| offset.trim().parse().ok()).unwrap_or(0))
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn lost(source: std::io::Error) -> CliError {
    CliError::Io { doing: "the Redis that the keys come from is gone (begin again with --replace)".into(), source }
}
