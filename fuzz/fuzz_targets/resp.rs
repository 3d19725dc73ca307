//! A client of the keys service that sends anything: what parses is run.

#![no_main]

use libfuzzer_sys::fuzz_target;
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::Config;
use savanna_keys::placement::{ActorId, Routes};
use savanna_keys::request::Args;
use savanna_resp::Encoder;
use savanna_resp::parse::{Limits, Parser};

fuzz_target!(|bytes: &[u8]| {
    let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 0);
    actor.keep_changes();
    let session = actor.open_session(String::new(), String::new());
    // Small, so that a long string is soon one that is refused.
    let limits = Limits { words: 1000, word_bytes: 1 << 16, line_bytes: 1 << 10, request_bytes: 1 << 20 };
    let (mut parser, mut replies, mut rest) = (Parser::default(), Vec::new(), bytes);
    while let Ok(Some(length)) = parser.next(rest, &limits) {
        replies.clear();
        let args = Args::new(rest, parser.spans());
        let mut encoder = Encoder::new(&mut replies, 3);
        let progress = actor.request(session, args, &mut encoder);
        let is_told_not_to_answer = encoder.answering.is_some();
        if actor.is_waiting(session) {
            break; // for another client
        }
        let is_answered = match progress {
            Progress::Answered | Progress::Closing => !replies.is_empty() || is_told_not_to_answer,
            Progress::Held => true,
            Progress::Later(_) | Progress::LaterAlone(_) | Progress::LaterClosing(_) => {
                actor.take_own_replies().iter().next().is_some()
            }
        };
        assert!(args.is_empty() || is_answered, "one actor answers at once: {}", rest[..length].escape_ascii());
        if matches!(progress, Progress::Closing | Progress::LaterClosing(_)) {
            break;
        }
        rest = &rest[length..];
    }
});
